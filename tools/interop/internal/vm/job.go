package vm

import (
	"fmt"
	"strings"
	"time"
)

// Job is a script that runs in the machine beside other commands.
type Job struct {
	vm  *VM
	dir string
}

// answerTime is what a command may take beyond the time that it is told to wait.
const answerTime = 20 * time.Second

// Begin starts a script in a session of its own. (Of a shell without a path, busybox
// would run its own, whose ip is not that of iproute2.)
func (v *VM) Begin(script string) (*Job, error) {
	j := &Job{vm: v, dir: fmt.Sprintf("/tmp/job%d", v.jobs.Add(1))}
	_, err := v.Shell(fmt.Sprintf(`mkdir %[1]s && cat >%[1]s/script <<'END OF SCRIPT'
%[2]s
END OF SCRIPT
setsid /bin/sh -c 'echo $$ >%[1]s/pid; /bin/sh %[1]s/script; echo $? >%[1]s/status.new; mv %[1]s/status.new %[1]s/status' >%[1]s/out 2>&1 </dev/null &`,
		j.dir, script), answerTime)
	return j, err
}

// Wait waits until the job has ended and returns what it has printed; the error
// tells of a job that has failed or takes longer.
func (j *Job) Wait(limit time.Duration) (string, error) {
	return j.result(fmt.Sprintf(`n=%d; until [ -e %[2]s/status ]; do [ $((n -= 1)) -gt 0 ] || break; sleep 0.05; done
cat %[2]s/out; [ -e %[2]s/status ] || { echo still running; exit 1; }; exit $(cat %[2]s/status)`, limit/(50*time.Millisecond), j.dir), limit)
}

// Until waits until a test of the shell is true, or the job has ended, which is an
// error.
func (j *Job) Until(test string, limit time.Duration) error {
	_, err := j.result(fmt.Sprintf(`n=%d; until %s; do
	[ ! -e %[3]s/status ] || { echo ended early; cat %[3]s/out; exit 1; }
	[ $((n -= 1)) -gt 0 ] || { echo not within the time; cat %[3]s/out; exit 1; }; sleep 0.05; done`, limit/(50*time.Millisecond), test, j.dir), limit)
	return err
}

func (j *Job) result(script string, limit time.Duration) (string, error) {
	return j.vm.Shell(script, 2*limit+answerTime) // an emulated machine sleeps longer than it means to
}

// End ends the job and what it has started, and returns what it has printed. A job
// that has ended already is no error.
func (j *Job) End() (string, error) {
	out, err := j.vm.Shell(fmt.Sprintf(`[ -e %[1]s/status ] || kill -9 -$(cat %[1]s/pid); cat %[1]s/out; rm -r %[1]s`, j.dir), answerTime)
	return strings.TrimSpace(out), err
}
