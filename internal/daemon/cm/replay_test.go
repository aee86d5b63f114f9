package cm_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Offsets in the captured frames: Ethernet, IPv4 and UDP, BTH and DETH, MAD.
const (
	ipAt  = 14
	bthAt = ipAt + 20 + 8
	madAt = bthAt + bth.BTHLen + bth.DETHLen
)

// captured returns the frames of queue pair 1 of a connection of rping between two
// Linux rxe NICs: REQ, REP, RTU, DREQ, DREP.
func captured(t *testing.T) (frames [][]byte) {
	t.Helper()
	fd, err := os.Open("../../../bth/testdata/cm_rping.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	r, err := pcapng.NewReader(fd)
	if err != nil {
		t.Fatal(err)
	}
	var f pcapng.Frame
	for r.Next(&f) == nil {
		var p bth.Packet
		if f.Data[ipAt+9] == 17 && p.Decode(f.Data[bthAt:]) == nil && p.DestQP == 1 {
			frames = append(frames, bytes.Clone(f.Data))
		}
	}
	if len(frames) != 5 {
		t.Fatalf("%d frames", len(frames))
	}
	return frames
}

// testHost is a NIC with an agent that replaces one of the captured machines.
type testHost struct {
	t     *testing.T
	nic   *rocev2.NIC
	agent *cm.Agent
	conn  *cm.Conn
	seen  []cm.EventKind
	ids   map[uint32]uint32 // from IDs of the capture to IDs of this run
}

func newHost(t *testing.T, host byte) *testHost {
	t.Helper()
	nic, err := rocev2.New(rocev2.Config{
		Name: "rxe_test", MAC: inet.MAC{2, 5: host}, MTU: 1500,
		Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, host}), 24)},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &testHost{t: t, nic: nic, ids: map[uint32]uint32{}}
	s.agent = cm.New(cm.Config{Port: nic, GUID: 0xff_fe00_0000 + uint64(host), Seed: [32]byte{host}})
	nic.SetGSI(s.agent)
	return s
}

func (s *testHost) CMEvent(_ mono.Time, c *cm.Conn, _ *cm.SIDR, e *cm.Event) {
	s.conn = c
	s.seen = append(s.seen, e.Kind)
}

func (s *testHost) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// translate replaces the IDs in a captured frame with those of this run: the message's IDs, and the ID in the
// transaction ID.
func (s *testHost) translate(frame []byte) []byte {
	f := bytes.Clone(frame)
	m := f[madAt:]
	for _, id := range [][]byte{m[mad.HeaderLen:], m[mad.HeaderLen+4:]} {
		if own, ok := s.ids[binary.BigEndian.Uint32(id)]; ok {
			binary.BigEndian.PutUint32(id, own)
		}
	}
	tid := m[12:]
	if own, ok := s.ids[binary.LittleEndian.Uint32(tid)]; ok {
		binary.LittleEndian.PutUint32(tid, own)
	}
	return f
}

// receive delivers a captured frame with the IDs of this run.
func (s *testHost) receive(frame []byte) {
	s.t.Helper()
	f := s.translate(frame)
	s.must(bth.SealICRC(f[ipAt:]))
	s.nic.Receive(0, f, 0)
}

// sent compares the next frame of the NIC with the captured one. They differ in the IP ID, in values derived from it,
// and in the IDs of the agent. own is the agent's ID in the capture.
func (s *testHost) sent(frame []byte, own uint32) {
	s.t.Helper()
	f := s.nic.PollTransmit(0)
	if f == nil {
		s.t.Fatal("nothing is sent")
	}
	got := f.AppendTo(nil)
	if err := bth.CheckICRC(got[ipAt:]); err != nil {
		s.t.Error(err)
	}
	s.ids[own] = binary.BigEndian.Uint32(got[madAt+mad.HeaderLen:])
	want := s.translate(frame)
	for _, b := range [][]byte{got, want} {
		clear(b[ipAt+4 : ipAt+6])
		clear(b[ipAt+10 : ipAt+12])
		clear(b[len(b)-bth.ICRCLen:])
	}
	if d := cmp.Diff(hex.Dump(want), hex.Dump(got)); d != "" {
		s.t.Errorf("-captured +sent\n%s", d)
	}
	if s.nic.PollTransmit(0) != nil {
		s.t.Error("more is sent")
	}
}

// resolve answers the ARP request for the peer.
func (s *testHost) resolve(host byte) {
	s.t.Helper()
	f := s.nic.PollTransmit(0)
	if f == nil {
		s.t.Fatal("no ARP request")
	}
	q := f.AppendTo(nil)
	a := bytes.Clone(q)
	copy(a, q[6:12])
	copy(a[6:], []byte{2, 0, 0, 0, 0, host})
	a[21] = 2
	copy(a[22:32], append([]byte{2, 0, 0, 0, 0, host}, q[38:42]...))
	copy(a[32:42], q[22:32])
	s.nic.Receive(0, a, 0)
}

const clientID, serverID = 0xed828ad7, 0xee828ad7

func gid4(host byte) inet.GID { return inet.GID{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: host} }

func (s *testHost) want(events ...cm.EventKind) {
	s.t.Helper()
	if d := cmp.Diff(events, s.seen); d != "" {
		s.t.Errorf("events (-want +got):\n%s", d)
	}
}

// TestReplayClient replaces the client with our agent, against the captured server.
func TestReplayClient(t *testing.T) {
	f := captured(t)
	s := newHost(t, 1)
	ip := mad.IPCM{Src: gid4(1).Addr(), Dst: gid4(2).Addr(), SrcPort: 0xe787}
	c, err := s.agent.Connect(0, &cm.ConnectParam{
		Route:     rocev2.MADRoute{SGID: gid4(1), DGID: gid4(2), HopLimit: 64, FlowLabel: 0xc2688},
		ServiceID: mad.IPServiceID(0x0106, 7471), QPN: 0x11, StartingPSN: bth.MakePSN(0x909dfc),
		ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetry: 7, PathMTU: 3,
		LocalAckTimeout: 19, LocalCMTimeout: 20, RemoteCMTimeout: 20, MaxCMRetries: 15, PrivateData: ip.Append(nil),
	}, s)
	s.must(err)
	s.resolve(2)
	s.sent(f[0], clientID)
	s.ids[serverID] = serverID
	s.receive(f[1])
	a := c.QPAttr()
	if a.RemoteQPN != 0x11 || a.SQPSN.Uint32() != 0x36c7a9 || a.RQPSN.Uint32() != 0x909dfc || a.MaxRdAtomic != 1 || a.RNRRetry != 7 {
		t.Errorf("%+v", a)
	}
	s.must(c.Establish(0, nil))
	s.sent(f[2], clientID)
	s.must(c.Disconnect(0, nil))
	s.sent(f[3], clientID)
	s.receive(f[4])
	s.want(cm.ConnectReply, cm.DisconnectReplied)
	s.nic.Advance(mono.Time(4 * time.Second))
	s.want(cm.ConnectReply, cm.DisconnectReplied)
	s.nic.Advance(mono.Time(5 * time.Second))
	s.want(cm.ConnectReply, cm.DisconnectReplied, cm.TimewaitExit)
}

// TestReplayServer replaces the server with our agent, against the captured client.
func TestReplayServer(t *testing.T) {
	f := captured(t)
	s := newHost(t, 2)
	_, err := s.agent.Listen(cm.ListenParam{ServiceID: mad.IPServiceID(0x0106, 7471), Local: gid4(2), Backlog: 1}, s)
	s.must(err)
	s.ids[clientID] = clientID
	s.receive(f[0])
	if s.conn == nil {
		t.Fatalf("no request: %+v", s.agent.Counters())
	}
	s.must(s.conn.Accept(0, &cm.AcceptParam{
		QPN: 0x11, StartingPSN: bth.MakePSN(0x36c7a9), ResponderResources: 1, InitiatorDepth: 1,
		TargetAckDelay: 15, RNRRetry: 7,
	}))
	s.resolve(1)
	s.sent(f[1], serverID)
	s.receive(f[2])
	s.receive(f[3])
	s.must(s.conn.DisconnectReply(0, nil))
	s.sent(f[4], serverID)
	s.want(cm.ConnectRequest, cm.Established, cm.Disconnected)
	a := s.conn.QPAttr()
	if a.RemoteQPN != 0x11 || a.SQPSN.Uint32() != 0x909dfc || a.RQPSN.Uint32() != 0x36c7a9 || a.PathMTU != 3 || a.Timeout != 19 || a.RetryCount != 7 {
		t.Errorf("%+v", a)
	}
}

// TestLoopback: two agents share one NIC, and their datagrams loop back.
func TestLoopback(t *testing.T) {
	s := newHost(t, 1)
	_, err := s.agent.Listen(cm.ListenParam{ServiceID: service, Backlog: 1}, s)
	s.must(err)
	c, err := s.agent.Connect(0, &cm.ConnectParam{
		Route: rocev2.MADRoute{SGID: gid4(1), DGID: gid4(1)}, ServiceID: service, QPN: 0x11, PathMTU: 3,
	}, s)
	s.must(err)
	poll := func() {
		t.Helper()
		if s.nic.PollTransmit(0) != nil {
			t.Error("a frame leaves the NIC")
		}
	}
	poll()
	server := s.conn
	s.must(server.Accept(0, accept(0x22, "")))
	poll()
	s.must(c.Establish(0, nil))
	poll()
	s.want(cm.ConnectRequest, cm.ConnectReply, cm.Established)
	s.must(server.Disconnect(0, nil))
	poll()
	s.must(c.DisconnectReply(0, nil))
	poll()
	s.want(cm.ConnectRequest, cm.ConnectReply, cm.Established, cm.Disconnected, cm.DisconnectReplied)
}
