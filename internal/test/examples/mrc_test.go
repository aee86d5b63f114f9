package examples

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// compiled compiles a C program with the library of MRC, under each of its names.
func compiled(t *testing.T, source string) string {
	t.Helper()
	var program string
	for _, name := range []string{"-lnv_mrc", "-l_mrc", "-lmrc"} {
		program = filepath.Join(lab.Bin, strings.TrimSuffix(filepath.Base(source), ".c"))
		args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../../preload/mrc", source, "-L" + lab.Bin, name, "-libverbs", "-o", program}
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("cc %s: %v\n%s", name, err, out)
		}
	}
	return program
}

// onMRC makes two NICs of the profile mrc.
func onMRC(t *testing.T, extra string) *lab.Lab {
	return lab.New(t, netlab.LabOptions{Unix: true, Extra: "    profile: mrc\n" + extra})
}

// counter returns a counter of the NIC of host i.
func counter(l *lab.Lab, i int, name string) (n uint64) {
	for _, s := range lab.Query[[]api.Stat](l, i, "stat") {
		n += s.Counters[name]
	}
	return n
}

// TestMRCShim: below a library that interposes functions of libibverbs and calls libmrc in them, a stock program for RC moves
// its data by MRC. C++ knows the attributes of a device by both names, too.
func TestMRCShim(t *testing.T) {
	lab.Need(t, "ib_write_bw")
	shim := filepath.Join(t.TempDir(), "shim.so")
	flags := []string{"-Wall", "-Wextra", "-Werror", "-I../../../preload/mrc"}
	args := append(flags, "-std=gnu11", "-fPIC", "-shared", "testdata/shim.c", "-L"+lab.Bin, "-lmrc", "-Wl,-rpath,"+lab.Bin, "-libverbs", "-o", shim)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	l := onMRC(t, "")
	run := func(i int, args ...string) *lab.Proc {
		return l.Exec(i, append([]string{"env", "LD_PRELOAD=" + shim + ":" + lab.Program("libroced.so"), "ib_write_bw", "-d", l.Host[i].Device, "-n", "100", "-p", "18187"}, args...)...)
	}
	server := run(0)
	lab.Must(t, server.Listens(18187))
	client := run(1, "127.0.0.1")
	for _, p := range []*lab.Proc{client, server} {
		if err := p.Wait(lab.Limit); err != nil || !strings.Contains(p.Said(), "shim: MRC") {
			t.Fatalf("%v\n%s", err, p.Said())
		}
	}
	if counter(l, 0, "rx_write_requests") < 100 {
		t.Error("no WRITEs have moved")
	}
}

// TestMRC: the example moves verified data between two NICs, each in both roles, with and without losses.
func TestMRC(t *testing.T) {
	program := compiled(t, "../../../examples/mrc/copy.c")
	l := onMRC(t, "")
	for round := range 4 {
		if round == 2 {
			for i := range 2 {
				l.Run(i, "fault", "add", l.Host[i].Device, "both drop p=0.01 seed=5")
			}
		}
		to := round % 2
		receiver := l.Exec(to, program, l.Host[to].Device, "18186")
		lab.Must(t, receiver.Listens(18186))
		sender := l.Exec(1-to, program, l.Host[1-to].Device, "18186", "127.0.0.1")
		for _, p := range []*lab.Proc{sender, receiver} {
			if err := p.Wait(lab.Limit); err != nil {
				t.Fatal(err)
			}
		}
		if out := receiver.Out.String(); !strings.Contains(out, "received and verified 4194304 bytes") {
			t.Errorf("%s", out)
		}
	}
	if n := counter(l, 0, "retransmitted_packets") + counter(l, 1, "retransmitted_packets"); n == 0 {
		t.Error("nothing was lost")
	}
	rc := lab.New(t, netlab.LabOptions{Unix: true})
	p := rc.Exec(0, program, rc.Host[0].Device, "18186")
	if code := p.Exit(lab.Limit); code != 1 || !strings.Contains(p.Said(), "another transport profile than mrc") {
		t.Errorf("a device of rc: exit code %d, %s", code, p.Said())
	}
}

// TestMRCLibrary: attributes take effect and are read back; everything that the library does not support says so. The
// program testdata/mrc.c has the steps.
func TestMRCLibrary(t *testing.T) {
	program := compiled(t, "testdata/mrc.c")
	l := onMRC(t, "    transports: {mrc: {cc_profiles: {7: {name: swift}}, ev_profiles: {3: {name: single}}}}\n")
	p := l.Exec(0, program, l.Host[0].Device)
	if err := p.Wait(lab.Limit); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mpr 65: must be 1 to 64", "cc_profile_id 8: must be one of transports.mrc.cc_profiles of the NIC, [7]"} {
		if !strings.Contains(p.Said(), want) {
			t.Errorf("the library does not explain %q: %s", want, p.Said())
		}
	}
	if n := counter(l, 0, "mrc_attr_errors"); n != 3 {
		t.Errorf("%d refusals counted", n)
	}
}
