package cm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/qp"
)

// script runs the commands of one file.
type script struct {
	*world
	last datagram // the last datagram delivered or lost
}

// TestScripts runs the golden transitions: sent datagrams and events.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		s := &script{world: newWorld(0)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.log.Reset()
			if err := s.run(d); err != nil {
				fmt.Fprintf(&s.log, "error: %v\n", err)
			}
			return s.log.String()
		})
	})
}

// arg returns an argument of the command, or def without one.
func arg[T any](d *datadriven.TestData, key string, def T) T {
	if d.HasArg(key) {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				if _, err := fmt.Sscan(a.Vals[0], &def); err != nil {
					panic(err)
				}
			}
		}
	}
	return def
}

func (s *script) run(d *datadriven.TestData) error {
	switch d.Cmd {
	case "reset":
		*s = script{world: newWorld(0)}
	case "run":
		for len(s.air) > 0 {
			s.step("")
			s.deliver()
		}
	case "drop":
		for len(s.air) > 0 {
			s.step(" lost")
			s.air = s.air[1:]
		}
	case "again":
		s.air = append(s.air, s.last)
	case "advance":
		dt, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			return err
		}
		s.advance(dt)
	case "state":
		for _, x := range []*side{s.a, s.b} {
			fmt.Fprintf(&s.log, "%s: %d, %+v\n", x.name, x.agent.Len(), x.agent.Counters())
			if x.conn != nil {
				fmt.Fprintf(&s.log, "   %v\n", x.conn.State())
			}
		}
	case "a":
		return s.side(s.a, d)
	case "b":
		return s.side(s.b, d)
	default:
		return fmt.Errorf("unknown command %s", d.Cmd)
	}
	return nil
}

// step logs the next datagram.
func (s *script) step(note string) {
	s.last = s.air[0]
	fmt.Fprintf(&s.log, "%s%s\n", s.last.describe(), note)
}

// side runs a command of one side.
func (s *script) side(x *side, d *datadriven.TestData) error {
	now, private := s.now, []byte(arg(d, "private", ""))
	switch verb := d.CmdArgs[0].Key; verb {
	case "listen":
		l, err := x.agent.Listen(cm.ListenParam{
			ServiceID: arg[uint64](d, "service", service), Mask: arg[uint64](d, "mask", 0),
			Backlog: arg(d, "backlog", 4), Datagram: d.HasArg("sidr"),
		}, x)
		x.lis = l
		return err
	case "unlisten":
		x.lis.Close(now)
	case "connect":
		p := x.param(string(private))
		p.ServiceID, p.QPN = arg[uint64](d, "service", service), arg[bth.QPN](d, "qpn", 0x11)
		p.PathMTU = qp.MTU(arg(d, "mtu", uint8(p.PathMTU)))
		return x.connect(p)
	case "accept":
		return x.conn.Accept(now, accept(arg[bth.QPN](d, "qpn", 0x22), string(private)))
	case "reject":
		return x.conn.Reject(now, arg(d, "reason", mad.ReasonConsumerDefined), []byte(arg(d, "ari", "")), private)
	case "delay":
		return x.conn.Delay(now, arg[uint8](d, "timeout", 22), private)
	case "establish":
		return x.conn.Establish(now, private)
	case "comm-est":
		return x.conn.CommEstablished(now)
	case "disconnect":
		return x.conn.Disconnect(now, private)
	case "disconnect-reply":
		return x.conn.DisconnectReply(now, private)
	case "close":
		x.conn.Close(now)
	case "qp":
		fmt.Fprintf(&s.log, "%+v\n", x.conn.QPAttr())
	case "resolve":
		r, err := x.agent.Resolve(now, &cm.SIDRParam{
			Route: x.route(), ServiceID: service, Timeout: 20, MaxCMRetries: 2, PrivateData: private,
		}, x)
		x.sidr = r
		return err
	case "reply":
		return x.sidr.Reply(now, &cm.SIDRReplyParam{
			Status: arg[mad.SIDRStatus](d, "status", 0), QPN: 0x33, QKey: 0x01234567, PrivateData: private})
	case "close-sidr":
		x.sidr.Close(now)
	case "down":
		x.down = true
	case "up":
		x.down = false
	case "send":
		return s.send(x, d)
	default:
		return fmt.Errorf("unknown verb %s", verb)
	}
	return nil
}

// send makes x send a message that its agent would not send.
func (s *script) send(x *side, d *datadriven.TestData) error {
	var m [mad.Len]byte
	h := mad.CMHeader(mad.Attr(arg[uint16](d, "attr", 0)), 7)
	h.Method = mad.Method(arg[uint8](d, "method", uint8(mad.MethodSend)))
	h.ClassVersion = arg(d, "version", h.ClassVersion)
	if h.Attr == mad.AttrLAP || h.Attr == mad.AttrDREQ || h.Attr == mad.AttrREP {
		copy(m[:], s.last.b) // IDs of the previous message
	}
	h.Put(m[:])
	return x.SendMAD(s.now, x.route(), m[:])
}
