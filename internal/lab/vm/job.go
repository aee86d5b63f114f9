package vm

import (
	"fmt"
	"strings"
	"time"
)

// Job is a background script in the machine.
type Job struct {
	vm  *VM
	dir string
}

// answerTime is the time that a command may take beyond its own time limit.
const answerTime = 20 * time.Second

// Begin starts a script in a new session. (The shell has a path: by its bare name busybox would run its own shell,
// whose ip is not iproute2's.)
func (v *VM) Begin(script string) (*Job, error) {
	j := &Job{vm: v, dir: fmt.Sprintf("/tmp/job%d", v.jobs.Add(1))}
	_, err := v.Shell(fmt.Sprintf(`mkdir %[1]s && cat >%[1]s/script <<'END OF SCRIPT'
%[2]s
END OF SCRIPT
setsid /bin/sh -c 'echo $$ >%[1]s/pid; /bin/sh %[1]s/script; echo $? >%[1]s/status.new; mv %[1]s/status.new %[1]s/status' >%[1]s/out 2>&1 </dev/null &`,
		j.dir, script), answerTime)
	return j, err
}

// Wait waits for the end of the job and returns its output. A failure of the job and a timeout are errors.
func (j *Job) Wait(limit time.Duration) (string, error) {
	return j.result(fmt.Sprintf(`n=%d; until [ -e %[2]s/status ]; do [ $((n -= 1)) -gt 0 ] || break; sleep 0.05; done
cat %[2]s/out; [ -e %[2]s/status ] || { echo still running; exit 1; }; exit $(cat %[2]s/status)`, limit/(50*time.Millisecond), j.dir), limit)
}

// Until waits until a shell test is true. The end of the job is an error.
func (j *Job) Until(test string, limit time.Duration) error {
	_, err := j.result(fmt.Sprintf(`n=%d; until %s; do
	[ ! -e %[3]s/status ] || { echo ended early; cat %[3]s/out; exit 1; }
	[ $((n -= 1)) -gt 0 ] || { echo not within the time; cat %[3]s/out; exit 1; }; sleep 0.05; done`, limit/(50*time.Millisecond), test, j.dir), limit)
	return err
}

func (j *Job) result(script string, limit time.Duration) (string, error) {
	return j.vm.Shell(script, 2*limit+answerTime) // sleeps in an emulated machine take longer
}

// End ends the job and its children, and returns its output. It is no error if the job has ended already.
func (j *Job) End() (string, error) {
	out, err := j.vm.Shell(fmt.Sprintf(`[ -e %[1]s/status ] || kill -9 -$(cat %[1]s/pid); cat %[1]s/out; rm -r %[1]s`, j.dir), answerTime)
	return strings.TrimSpace(out), err
}
