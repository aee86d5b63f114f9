package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
)

// reloading is a daemon whose configuration changes while a client sends.
type reloading struct {
	t                *testing.T
	dir, run, config string
	daemon           *lab.Proc
	client           *lab.Proc
	api              *api.Client
}

// nicKeys returns a NIC on one end of an AF_UNIX link.
func (r *reloading) nicKeys(name string, number int, own, peer, more string) string {
	return fmt.Sprintf("  - {name: %s, addresses: [198.18.5.%d/24], port: {type: unix, local: %s/%s, remote: %[3]s/%[5]s}%[6]s}\n",
		name, number, r.dir, own, peer, more)
}

// write writes the configuration, with more keys and NICs than those of the client.
func (r *reloading) write(keys, aKeys, nics string) {
	lab.Must(r.t, os.WriteFile(r.config, []byte("run_dir: "+r.run+"\n"+keys+"nics:\n"+r.nicKeys("rxe_a", 1, "a", "b", aKeys)+
		r.nicKeys("rxe_b", 2, "b", "a", "")+nics), 0o600))
}

func (r *reloading) start(program string, args ...string) *lab.Proc {
	return lab.Launch(r.t, (*exec.Cmd).Start, append([]string{lab.Program(program)}, args...))
}

// reload runs roced reload and compares its exit code and words. The client's traffic goes on.
func (r *reloading) reload(code int, args []string, words ...string) {
	r.t.Helper()
	p := r.start("roced", append([]string{"reload", "--run-dir", r.run}, args...)...)
	if got := p.Exit(lab.Limit); got != code {
		r.t.Fatalf("reload: exit code %d, want %d\n%s", got, code, p.Said())
	}
	for _, w := range words {
		if !strings.Contains(p.Said(), w) {
			r.t.Errorf("reload does not say %q:\n%s", w, p.Said())
		}
	}
	before := r.sent()
	lab.Eventually(r.t, lab.Limit, "traffic after a reload", func() bool { return r.sent() > before+100 })
	if !r.client.Running() {
		r.t.Fatalf("the client has ended\n%s", r.client.Said())
	}
}

// sent returns the number of packets that the client's NIC has sent.
func (r *reloading) sent() uint64 {
	var s []api.Stat
	lab.Must(r.t, r.api.Get(r.t.Context(), &s, "stat", "rxe_a"))
	return s[0].Shard.TxFrames
}

// nics returns the names of the NICs, and the rules of the first one.
func (r *reloading) nics() (names string, rules int) {
	var links []api.Link
	lab.Must(r.t, r.api.Get(r.t.Context(), &links, "links"))
	for _, l := range links {
		names += l.Name + " "
	}
	return names, links[0].Faults
}

// perf starts roceperf on two NICs.
func (r *reloading) perf(server, client string, args ...string) (*lab.Proc, *lab.Proc) {
	oob := filepath.Join(r.dir, "oob_"+server)
	all := append([]string{"write-bw", "--oob", "unix:" + oob, "--run-dir", r.run}, args...)
	s := r.start("roceperf", append(all[:len(all):len(all)], "--device", server)...)
	lab.Eventually(r.t, lab.Limit, "a server", func() bool { return pathExists(oob) })
	return s, r.start("roceperf", append(all[:len(all):len(all)], "--device", client, "peer")...)
}

// TestReload: a reload changes the log, fault rules and NICs while a client sends. A refused reload changes nothing.
func TestReload(t *testing.T) {
	dir := lab.Dir(t)
	r := &reloading{t: t, dir: dir, run: filepath.Join(dir, "run"), config: filepath.Join(dir, "roced.yaml")}
	r.write("", "", "")
	r.daemon = r.start("roced", "run", "--config", r.config)
	r.api = api.NewClient(filepath.Join(r.run, api.Socket))
	t.Cleanup(r.api.Close)
	lab.Must(t, r.daemon.Ready("a daemon", func() (bool, error) {
		var links []api.Link
		return r.api.Get(t.Context(), &links, "links") == nil, nil
	}))
	_, r.client = r.perf("rxe_b", "rxe_a", "-s", "4k", "-D", "1h")
	lab.Eventually(t, lab.Limit, "traffic", func() bool { return r.sent() > 100 })

	r.reload(0, nil, "nothing has changed")
	r.write("log: {level: debug}\n", ", faults: ['tx drop p=0.001 seed=1']", "")
	r.reload(0, nil, "log.level", "nics[rxe_a].faults")
	if _, rules := r.nics(); rules != 1 {
		t.Errorf("%d fault rules", rules)
	}

	pair := r.nicKeys("rxe_c", 3, "c", "d", "") + r.nicKeys("rxe_d", 4, "d", "c", "")
	r.write("", "", pair)
	r.reload(0, nil, "nics[rxe_c], added", "nics[rxe_d], added", "nics[rxe_a].faults")
	server, client := r.perf("rxe_d", "rxe_c", "-s", "64k", "-n", "20", "--verify")
	if client.Exit(lab.Limit) != 0 || server.Exit(lab.Limit) != 0 {
		t.Fatalf("on the added NICs: %s%s", client.Said(), server.Said())
	}

	r.write("drain: 1s\n", ", mtu: 1500", r.nicKeys("rxe_c", 3, "c", "d", "")) // one key is refused, so nothing changes
	r.reload(1, nil, r.config+":4:", `nics.0.mtu: cannot change from "4200" to "1500" while the daemon runs: restart it`)
	lab.Must(t, os.WriteFile(r.config, []byte("nics: [{name: rxe_a\n"), 0o600))
	r.reload(1, nil, "this is not YAML")
	r.write("", "", pair)
	lab.Must(t, os.Chmod(r.config, 0o666))
	r.reload(1, nil, "every user can write it")
	lab.Must(t, os.Chmod(r.config, 0o600))
	r.reload(0, nil, "nothing has changed")

	_, client = r.perf("rxe_d", "rxe_c", "-D", "1h")
	lab.Eventually(t, lab.Limit, "clients", func() bool {
		var links []api.Link
		lab.Must(t, r.api.Get(t.Context(), &links, "links"))
		return links[2].Clients > 0
	})
	r.write("", "", "")
	r.reload(1, nil, "NIC rxe_c has ", "--force")
	r.reload(0, []string{"--force"}, "nics[rxe_c], removed")
	if names, _ := r.nics(); names != "rxe_a rxe_b " {
		t.Errorf("NICs %s", names)
	}
	if client.Exit(lab.Limit) == 0 {
		t.Error("a client of a removed NIC has succeeded")
	}
	if left, err := filepath.Glob(filepath.Join(r.run, "sysfs/class/infiniband/*")); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}

	r.write("", "", pair)
	r.daemon.Signal(syscall.SIGHUP)
	lab.Eventually(t, lab.Limit, "NICs added by SIGHUP", func() bool {
		names, _ := r.nics()
		return names == "rxe_a rxe_b rxe_c rxe_d "
	})
	r.client.Signal(syscall.SIGTERM)
	_ = r.client.Wait(time.Minute)
}
