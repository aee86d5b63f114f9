package verbs

import (
	"strings"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
)

// attached holds the descriptors of a response, and the provider's part after the structure.
type attached struct {
	fds  []uverbs.FD
	rest []byte
}

// take returns a descriptor, which the caller then owns, or -1 if the response has
// none.
func (a *attached) take(kind uint32, arg uint64) int {
	for i, f := range a.fds {
		if f.FD >= 0 && f.Kind == kind && f.Arg == arg {
			a.fds[i].FD = -1
			return f.FD
		}
	}
	return -1
}

// close closes the descriptors that have not been taken.
func (a *attached) close() {
	for i, f := range a.fds {
		if f.FD >= 0 {
			_ = unix.Close(f.FD)
			a.fds[i].FD = -1
		}
	}
}

// roundTrip runs a command whose response is an R. The caller closes the attached descriptors.
func roundTrip[R any](c *Context, verb string, number uint32, bodies ...any) (R, *attached, error) {
	return answered[R](c, verb, uverbs.Command(number, uverbs.Size[R](), bodies...), nil)
}

// ask runs a command whose response is an R without descriptors.
func ask[R any](c *Context, verb string, number uint32, bodies ...any) (R, error) {
	return alone(roundTrip[R](c, verb, number, bodies...))
}

// alone closes unexpected descriptors of a response.
func alone[R any](r R, a *attached, err error) (R, error) {
	if err == nil {
		a.close()
	}
	return r, err
}

// create runs a command whose response is an R and the provider's part P.
func create[R, P any](c *Context, verb string, number uint32, body any) (r R, p P, err error) {
	r, a, err := answered[R](c, verb, uverbs.Command(number, uverbs.Size[R]()+uverbs.Size[P](), body), nil)
	if err != nil {
		return r, p, err
	}
	a.close()
	if p, err = uverbs.Decode[P](a.rest); err != nil {
		err = fail(verb, "response", ErrProtocol)
	}
	return r, p, err
}

// object is something of a program that has a handle and memory or descriptors in this process.
type object interface {
	releaser
	destroy() error
}

// destroy destroys an object at the device, and then here.
func (c *Context) destroy(o object) error {
	if err := o.destroy(); err != nil {
		return err
	}
	c.drop(o)
	return nil
}

// remove runs the command that destroys an object with a user handle.
func remove[R any](c *Context, verb string, number uint32, body any, user uint64) error {
	_, err := ask[R](c, verb, number, body)
	if err == nil {
		c.forgetUser(user)
	}
	return err
}

// answered sends an encoded command and decodes the response.
func answered[R any](c *Context, verb string, cmd []byte, fds []int) (r R, a *attached, err error) {
	resp, got, err := c.send(verb, cmd, fds)
	if err != nil {
		return r, nil, err
	}
	a = &attached{fds: got}
	if r, err = uverbs.Decode[R](resp); err != nil {
		a.close()
		return r, nil, fail(verb, "response", ErrProtocol)
	}
	a.rest = resp[uverbs.Size[R]():]
	return r, a, nil
}

// run runs a command without a response.
func (c *Context) run(verb string, number uint32, bodies ...any) error {
	_, got, err := c.send(verb, uverbs.Command(number, 0, bodies...), nil)
	if err != nil {
		return err
	}
	(&attached{fds: got}).close()
	return nil
}

// send runs an encoded command. After any error except a refusal by the daemon, the
// device is lost.
func (c *Context) send(verb string, cmd []byte, fds []int) ([]byte, []uverbs.FD, error) {
	if err := c.Err(); err != nil {
		return nil, nil, fail(verb, "", err)
	}
	resp, got, err := c.dev.call(cmd, fds)
	switch err.(type) {
	case nil:
		return resp, got, nil
	case unix.Errno, *uverbs.Refusal:
		return nil, nil, fail(verb, "", err)
	}
	c.end(ErrDeviceFatal)
	_ = c.dev.hangUp() // aborts all calls in progress
	if c.async != nil {
		_ = c.async.Close()
	}
	return nil, nil, fail(verb, err.Error(), c.Err())
}

// splitList splits a comma-separated list.
func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
