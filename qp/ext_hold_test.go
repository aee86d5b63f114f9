package qp

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
)

// TestHoldLast checks each mode (Eunomia 3.5.2, A.1). It compares the last packets held until all earlier ones are
// acknowledged. It also compares the message ends that reach memory before their beginnings. Four messages of two
// packets are sent, and the first packet is late.
func TestHoldLast(t *testing.T) {
	const messages = 4
	none, all, idle := []int(nil), []int{0, 1, 2, 3}, []int{3}
	for _, c := range []struct {
		name        string
		hold        HoldLast
		op          WROpcode
		held, early []int // messages
	}{
		{"receiver", HoldAtReceiver, WRWrite, none, none},
		{"sender", HoldAtSender, WRWrite, all, none},
		{"sender, idle", HoldAtSenderIdle, WRWrite, idle, []int{0, 1, 2}},
		{"receiver, immediate data", HoldAtReceiver, WRWriteImm, none, all},
		{"sender, immediate data", HoldAtSender, WRWriteImm, none, all},
		{"sender, idle, immediate data", HoldAtSenderIdle, WRWriteImm, none, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := lossless
			conf.timeout, conf.profile = 9, func() Profile { return eunomia(c.hold, nil) }
			p := newPair(t, conf)
			clear(p.ends[1].h.mem)
			l := newWorkload(p, 0)
			for range messages {
				l.add(c.op, 512, 0, rand.New(rand.NewPCG(3, 3)))
			}
			written := func(at uint64) bool { return !bytes.Equal(p.ends[1].h.mem[at:at+256], make([]byte, 256)) }
			var held, early []int
			p.faults = func(_ int, k *bth.Packet) fault {
				switch {
				case !k.Opcode.IsWrite():
				case !k.Opcode.Ends():
					return fault{delay: 20 * time.Microsecond}
				case p.ends[0].q.req.una == k.PSN:
					held = append(held, int(k.Ext.MSN))
				}
				return fault{}
			}
			for p.step() {
				for i, o := range l.ops {
					if written(o.off+256) && !written(o.off) && !slices.Contains(early, i) {
						early = append(early, i)
					}
				}
			}
			l.verify(t)
			if !slices.Equal(held, c.held) || !slices.Equal(early, c.early) {
				t.Errorf("last packets of %v are held at the sender, ends of %v come early, want %v and %v", held, early, c.held, c.early)
			}
		})
	}
}

// TestHoldLastGoodput runs over four paths of unequal delay. The receiver's hold costs a stream of WRITEs nothing.
// The sender's hold costs a round trip per message, unless it applies only to the last message.
func TestHoldLastGoodput(t *testing.T) {
	const packets = 8192
	for _, c := range []struct {
		name   string
		hold   HoldLast
		length uint32 // packets of a message
		lo, hi float64
	}{
		{"receiver", HoldAtReceiver, 1, 3.6, 4},
		{"sender", HoldAtSender, 1, 0, 1},
		{"sender, idle", HoldAtSenderIdle, 1, 3.6, 4},
		{"receiver", HoldAtReceiver, 16, 3.6, 4},
		{"sender", HoldAtSender, 16, 0, 1},
		{"sender, idle", HoldAtSenderIdle, 16, 3.6, 4},
		{"receiver", HoldAtReceiver, 256, 3.6, 4},
		{"sender", HoldAtSender, 256, 2, 3.5},
		{"sender, idle", HoldAtSenderIdle, 256, 3.6, 4},
	} {
		conf := pairConfig{links: unequalLinks(), profile: func() Profile {
			p := eunomia(c.hold, nil)
			p.Controller = plugIn(ccalgo.New, "static", ccalgo.Params{"window_bytes": 96 * 256})
			p.Paths = plugIn(path.New, "spray", path.Params{"paths": 64})
			return p
		}}
		p := movingIn(t, conf, WRWrite, int(packets/c.length), c.length*256)
		p.run(t)
		speed, ctr := packets*800/float64(p.now), p.ends[0].q.ctr
		t.Logf("%s, %d packets: %.2f links, %d sent again", c.name, c.length, speed, ctr.RetransmittedPackets)
		if n := len(p.ends[0].h.sendCQ); speed < c.lo || speed > c.hi || n != int(packets/c.length) {
			t.Errorf("%s, %d packets: %.2f links, want %v to %v; %d completions", c.name, c.length, speed, c.lo, c.hi, n)
		}
	}
}
