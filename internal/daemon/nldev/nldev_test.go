package nldev

import (
	"context"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/api"
)

// fake is a view of two devices, whose first one has qps queue pairs.
type fake struct{ qps int }

func (fake) Devices() []Device {
	return []Device{{Index: 0, Name: "rxe_a", Firmware: "1.0.0", GUID: [8]byte{1, 7: 2}, Netdev: "lo", NetdevIndex: 1}, {Index: 3, Name: "rxe_b"}}
}

func (fake) Active(_ context.Context, device string) (bool, error) { return device == "rxe_a", nil }

func (f fake) Resources(_ context.Context, device, kind string) (out []api.Resource, err error) {
	if device != "rxe_a" {
		return nil, nil
	}
	if kind == "pd" {
		return nil, errors.New("the NIC has ended")
	}
	for i := range f.qps {
		out = append(out, api.Resource{PID: 7, QP: &api.QP{Num: uint32(100 + i), Type: "RC", State: "RTS", Dest: 9},
			CMID: &api.CMID{ID: uint32(i), State: "LISTEN", PS: "TCP", Src: "127.0.0.1:7471", Dst: "invalid AddrPort"},
			CQ:   &api.CQ{ID: uint32(i), CQE: 15}, MR: &api.MR{ID: uint32(i), Length: 4096}})
	}
	return out, nil
}

// asking builds a request with attributes of four bytes: type, value, type, value.
func asking(command, flags uint16, attrs ...uint32) []byte {
	m := newMessage(&request{seq: 5, port: 6}, client|command, unix.NLM_F_REQUEST|flags)
	for i := 0; i < len(attrs); i += 2 {
		m.u32(uint16(attrs[i]), attrs[i+1])
	}
	return m.done()
}

// answers returns the answers to a datagram.
func answers(t *testing.T, v View, datagram []byte) (out [][]byte) {
	t.Helper()
	err := Answer(t.Context(), datagram, v, func(m []byte) error {
		out = append(out, slices.Clone(m))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refusal returns the error number of an answer, 0 for others.
func refusal(m []byte) unix.Errno {
	if native.Uint16(m[4:]) != unix.NLMSG_ERROR {
		return 0
	}
	return unix.Errno(-int32(native.Uint32(m[16:])))
}

func TestRefusals(t *testing.T) {
	none := []uint32(nil)
	for _, c := range []struct {
		name    string
		command uint16
		flags   uint16
		attrs   []uint32
		want    unix.Errno
	}{
		{"no index", cmdGet, 0, none, unix.EINVAL},
		{"unknown index", cmdGet, 0, []uint32{attrDevIndex, 1}, unix.ENODEV},
		{"unknown index of a dump", cmdResQP, unix.NLM_F_DUMP, []uint32{attrDevIndex, 1}, unix.ENODEV},
		{"no port", cmdPortGet, 0, []uint32{attrDevIndex, 0}, unix.EINVAL},
		{"unknown port", cmdPortGet, 0, []uint32{attrDevIndex, 0, attrPortIndex, 2}, unix.EINVAL},
		{"no number", cmdResQP, 0, []uint32{attrDevIndex, 0}, unix.EINVAL},
		{"unknown number", cmdResQP, 0, []uint32{attrDevIndex, 0, attrLocalQPN, 99}, unix.ENOENT},
		{"failure of the NIC", cmdResPD, unix.NLM_F_DUMP, []uint32{attrDevIndex, 0}, unix.EIO},
		{"failure within a summary", cmdResGet, 0, []uint32{attrDevIndex, 0}, unix.EIO},
		{"change", 2, unix.NLM_F_ACK, []uint32{attrDevIndex, 0}, unix.EOPNOTSUPP},
		{"other node", cmdChardev, 0, []uint32{attrDevIndex, 0}, unix.EOPNOTSUPP},
	} {
		got := answers(t, fake{2}, asking(c.command, c.flags, c.attrs...))
		if len(got) != 1 || refusal(got[0]) != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAcknowledgement(t *testing.T) {
	got := answers(t, fake{2}, asking(cmdResQP, unix.NLM_F_ACK, attrDevIndex, 0, attrLocalQPN, 101))
	if len(got) != 2 || refusal(got[0]) != 0 || native.Uint16(got[1][4:]) != unix.NLMSG_ERROR || refusal(got[1]) != 0 {
		t.Fatal(got)
	}
	r := attributes(got[0][unix.NLMSG_HDRLEN:])
	if native.Uint32(r[attrLocalQPN]) != 101 || native.Uint32(r[attrPID]) != 7 {
		t.Error(r)
	}
}

// TestLongList checks that a list continues in further messages, which are short enough for readers, without a gap.
func TestLongList(t *testing.T) {
	const n = 1000
	got := answers(t, fake{n}, asking(cmdResQP, unix.NLM_F_DUMP))
	var numbers []uint32
	for i, m := range got {
		if len(m) > 4096 || int(native.Uint32(m)) != len(m) || native.Uint32(m[8:]) != 5 || native.Uint32(m[12:]) != 6 {
			t.Fatalf("message %d: %d bytes, %x", i, len(m), m[:16])
		}
		list := attributes(m[unix.NLMSG_HDRLEN:])[attrQP]
		for len(list) > 0 {
			length := int(native.Uint16(list))
			numbers = append(numbers, native.Uint32(attributes(list[unix.NLA_HDRLEN:length])[attrLocalQPN]))
			list = list[align(length):]
		}
	}
	if len(numbers) != n || numbers[0] != 100 || numbers[n-1] != 100+n-1 || native.Uint16(got[len(got)-1][4:]) != unix.NLMSG_DONE {
		t.Errorf("%d messages, %d queue pairs", len(got), len(numbers))
	}
}

// TestSeveralRequests checks that requests of one datagram are answered in order, and that the system has copy-on-fork.
func TestSeveralRequests(t *testing.T) {
	got := answers(t, fake{}, append(asking(cmdSysGet, 0), asking(2, 0)...))
	if a := attributes(got[0][unix.NLMSG_HDRLEN:])[attrCopyOnFork]; len(a) == 0 || a[0] != 1 {
		t.Errorf("copy-on-fork is %v, want 1", a)
	}
	if len(got) != 2 || refusal(got[0]) != 0 || refusal(got[1]) != unix.EOPNOTSUPP {
		t.Error(got)
	}
}

// TestBrokenConnection checks that the error of a connection is no answer.
func TestBrokenConnection(t *testing.T) {
	for _, command := range []uint16{cmdGet, cmdSysGet, cmdResQP} {
		calls := 0
		err := Answer(t.Context(), asking(command, unix.NLM_F_DUMP), fake{2}, func([]byte) error { calls++; return unix.EPIPE })
		if err == nil || calls != 1 {
			t.Errorf("command %d: %v after %d messages", command, err, calls)
		}
	}
}

// FuzzAnswer checks that no datagram causes a panic, and that answers are messages of limited length.
func FuzzAnswer(f *testing.F) {
	for command := range uint16(16) {
		f.Add(asking(command, unix.NLM_F_DUMP))
		f.Add(asking(command, 0, attrDevIndex, 0, attrPortIndex, 1, attrLocalQPN, 100))
	}
	f.Add([]byte{17, 0, 0, 0, 1, 20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		_ = Answer(t.Context(), datagram, fake{3}, func(m []byte) error {
			if len(m) < unix.NLMSG_HDRLEN || len(m) > 4096 || int(native.Uint32(m)) != len(m) {
				t.Fatalf("%x", m)
			}
			return nil
		})
	})
}
