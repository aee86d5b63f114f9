package watch_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/internal/observe/watch"
)

// nic is a NIC whose capture sends a frame of rc_write.pcap each 90 ms. After ctx it sends the rest and ends. The capture has
// lost two frames before each.
func nic(ctx context.Context, t *testing.T, limit int) io.ReadCloser {
	t.Helper()
	packets := newTap(t).packets
	packets = packets[:min(limit, len(packets))]
	rd, wr := io.Pipe()
	go func() {
		w, err := pcapng.NewWriter(wr, "test")
		if err != nil {
			t.Error(err)
			return
		}
		_, err = w.AddInterface(pcapng.Interface{Name: "rxe_a", Link: pcapng.LinkEthernet})
		for _, p := range packets {
			select {
			case <-time.After(90 * time.Millisecond):
			case <-ctx.Done():
				time.Sleep(time.Millisecond)
			}
			if err == nil {
				err = w.WritePacket(pcapng.PacketInfo{Time: time.Now().UnixNano(), Lost: 2}, make([]byte, 12), []byte{8, 0}, p)
			}
			if err != nil {
				break
			}
		}
		wr.CloseWithError(err)
	}()
	return rd
}

// TestRecording follows the capture of a NIC. The last report holds the frames that come after the interrupt, and all lost
// ones.
func TestRecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		defer cancel()
		in := nic(ctx, t, 100)
		r := watch.Record(ctx, in)
		defer r.Close()
		defer in.Close()
		var got []watch.Report
		err := watch.Follow(ctx, r, &watch.Reporter{}, flow.New(flow.Options{}), 250*time.Millisecond, 0, func(r *watch.Report) error {
			got = append(got, *r)
			return nil
		})
		all := uint64(len(newTap(t).packets))
		if n := len(got); err != nil || n != 3 || got[0].Totals.Packets != 2 || got[1].Totals.Packets != 5 || got[2].Totals.Packets != all || got[2].Lost != 2*all {
			t.Errorf("%v, want 2, 5 and %d packets: %+v", err, all, got)
		}
	})
}

// TestRecordingEnds: a NIC that ends is an error, after a report. Close ends the reading of a capture that goes on.
func TestRecordingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, reports := nic(t.Context(), t, 3), 0
		r := watch.Record(t.Context(), in)
		err := watch.Follow(t.Context(), r, &watch.Reporter{}, flow.New(flow.Options{}), time.Second, 0, func(*watch.Report) error {
			reports++
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "the capture has ended") || reports != 1 {
			t.Errorf("%d reports, %v", reports, err)
		}
		in.Close()
		r.Close()

		damaged, err := os.Open("recording_test.go")
		if err != nil {
			t.Fatal(err)
		}
		defer damaged.Close()
		r = watch.Record(t.Context(), damaged)
		defer r.Close()
		if err := watch.Follow(t.Context(), r, &watch.Reporter{}, flow.New(flow.Options{}), time.Second, 0, nil); err == nil {
			t.Error("a damaged capture is no error")
		}

		in = nic(t.Context(), t, 100)
		r = watch.Record(t.Context(), in)
		time.Sleep(time.Second)
		r.Close()
		in.Close()
		time.Sleep(time.Second) // the NIC ends
	})
}
