package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/perf"
	"roced.io/roced/internal/lab/vm"
	"roced.io/roced/qp/profile"
)

// profiles is the part with every transport profile between two NICs of ours inside the machine. They are on a veth
// pair with tc netem on both ends, because only the machine's kernel has netem.
type profiles struct {
	names    []string
	lines    []string
	verbs    []string
	messages uint64
	limit    time.Duration
	logs     string // folder for the captures of failures
}

// newProfiles returns the part, or a sample of it.
func newProfiles(short bool, logs string) profiles {
	p := profiles{names: profile.Complete(), lines: netemLines, verbs: []string{"write-bw", "send-bw", "read-bw"}, messages: 60,
		limit: 120 * time.Second, logs: logs}
	if short {
		p.lines, p.verbs, p.messages = netemLines[len(netemLines)-1:], p.verbs[:1], 20
	}
	return p
}

const profilesIntro = "Two NICs of ours inside the machine, joined by a veth pair with tc netem on both ends: each profile moves messages of\n" +
	"20000 bytes, path MTU 1024, by WRITE, SEND and READ, and every byte is compared. The capture of one NIC is dissected by\n" +
	"Wireshark with configs/wireshark/roced.lua, which also checks every ICRC: no frame may be malformed, and none\n" +
	"but those that netem has corrupted may have a wrong one."

func (p profiles) run(l *lab, r *report) {
	head := []string{"netem, both directions"}
	r.begin(table{Title: "Every transport under tc netem", Intro: profilesIntro, Head: append(head, p.names...)})
	u := onVeth
	u.nic += ", profiles: [" + strings.Join(p.names, ", ") + "]"
	daemon, err := u.start(l.vm)
	if err == nil {
		for _, line := range p.lines {
			p.line(l, r, line)
		}
	}
	if err = errors.Join(err, u.stop(l.vm, daemon)); err != nil {
		r.failed("profiles", err)
	}
}

// line runs all profiles under one line of netem.
func (p profiles) line(l *lab, r *report, line string) {
	row := []string{"`" + line + "`"}
	if line == "" {
		row[0] = "none"
	}
	_, err := l.vm.Shell(netemScript(line, setupDevices...), commandLimit)
	for i, name := range p.names {
		var cell string
		if err == nil {
			cell, err = p.trial(l.vm, line, i)
		}
		if err != nil {
			r.failed(fmt.Sprintf("profile %s under netem %q", name, line), err)
			cell, err = "**failed**", nil
		}
		row = append(row, cell)
	}
	r.row(row...)
}

// trial moves messages by every verb on the devices of profile i and returns the number of captured frames.
func (p profiles) trial(m *vm.VM, line string, i int) (string, error) {
	capture, err := m.Begin("rm -f /tmp/profile.pcapng; echo $$ >/tmp/capture.pid; exec rocectl --run-dir /tmp/speed capture rxe_s1 -w /tmp/profile.pcapng")
	if err == nil {
		err = capture.Until("[ -e /tmp/profile.pcapng ]", commandLimit)
	}
	for _, verb := range p.verbs {
		if err == nil {
			err = p.transfer(m, verb, i)
		}
	}
	if err == nil { // the end of the capture completes its file
		_, err = m.Shell("kill -INT $(cat /tmp/capture.pid)", commandLimit)
	}
	if err == nil {
		_, err = capture.Wait(commandLimit)
	}
	var file string
	if err == nil {
		file, err = m.Shell("cat /tmp/profile.pcapng", p.limit)
	}
	if capture != nil {
		_, err2 := capture.End()
		err = errors.Join(err, err2)
	}
	if err != nil {
		return "", err
	}
	return dissected(file, filepath.Join(p.logs, p.names[i]+"-"+strings.ReplaceAll(line, " ", "-")+".pcapng"), strings.Contains(line, "corrupt"))
}

// transfer runs both sides of a verified transfer.
func (p profiles) transfer(m *vm.VM, verb string, profile int) error {
	common := fmt.Sprintf("roceperf %s --run-dir /tmp/speed --profile %s --oob unix:/tmp/oob --verify -n %d -s 20000 -m 1024 -t 16 -r 64 -u 17 --quiet",
		verb, p.names[profile], p.messages)
	server, err := m.Begin(fmt.Sprintf("rm -f /tmp/oob; exec %s -d rxe_s2", common))
	if err != nil {
		return err
	}
	err = server.Until("[ -S /tmp/oob ]", commandLimit)
	var out string
	if err == nil {
		out, err = m.Shell(fmt.Sprintf("timeout %d %s -d rxe_s1 --json peer", int(p.limit.Seconds()), common), p.limit+commandLimit)
	}
	said, err2 := server.End()
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("%s: %w\n%s", verb, err, said)
	}
	var result perf.Result
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return fmt.Errorf("%s: %w in\n%s", verb, err, out)
	}
	if !result.Verified || result.Messages < p.messages {
		return fmt.Errorf("%s: %d messages verified, want %d", verb, result.Messages, p.messages)
	}
	return nil
}

// dissected makes tshark read a capture, and returns the number of good frames in it. Malformed frames are an error,
// and so is a wrong ICRC unless netem corrupts frames. On an error the capture is stored in the named file.
func dissected(capture, name string, corrupt bool) (string, error) {
	err := os.MkdirAll(filepath.Dir(name), 0o777)
	if err = errors.Join(err, os.WriteFile(name, []byte(capture), 0o666)); err != nil {
		return "", err
	}
	bad := `_ws.malformed or roced.malformed or roced.icrc == "bad"`
	if corrupt { // a corrupted frame may look like anything, but a good frame must be well formed
		bad = `(_ws.malformed or roced.malformed) and roced.icrc == "good"`
	}
	good, err := filtered(name, `roced.icrc == "good"`)
	if err != nil || len(good) == 0 {
		return "", errors.Join(err, fmt.Errorf("%s has no good frame", name))
	}
	if list, err := filtered(name, bad); err != nil || len(list) > 0 {
		return "", errors.Join(err, fmt.Errorf("%d frames of %s match %s, the first is\n%s", len(list), name, bad, list[0]))
	}
	return fmt.Sprintf("verified, %d frames", len(good)), os.Remove(name)
}

// filtered lists the frames of a capture that match a display filter, one per line.
func filtered(file, filter string) (lines []string, err error) {
	out, err := netlab.Tshark("configs/wireshark/roced.lua", "-r", file, "-Y", filter).Output()
	return slices.Collect(strings.Lines(string(out))), err
}
