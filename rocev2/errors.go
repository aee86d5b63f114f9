package rocev2

import (
	"errors"
	"fmt"
)

// Errors of the control verbs. Each stands for one errno of the verbs API; what
// a call returns wraps one of them and names the verb and the attribute.
var (
	ErrInvalid = errors.New("rocev2: invalid argument")     // EINVAL
	ErrNoMem   = errors.New("rocev2: no room")              // ENOMEM
	ErrBusy    = errors.New("rocev2: object is in use")     // EBUSY
	ErrLimit   = errors.New("rocev2: limit of the device")  // ENOMEM: as many objects as there can be
	ErrAccess  = errors.New("rocev2: access not permitted") // EACCES
)

// fail returns err with the verb and the attribute at fault.
func fail(verb, attr string, err error) error { return fmt.Errorf("%s: %s: %w", verb, attr, err) }

// failWith is fail for an error of a part of the NIC, which stays recognisable.
func failWith(verb, attr string, class, err error) error {
	return fmt.Errorf("%s: %s: %w: %w", verb, attr, class, err)
}

// failPath is failWith for an address vector that leads nowhere.
func failPath(verb string, err error) error {
	if errors.Is(err, ErrNeighbours) {
		return failWith(verb, "ah_attr", ErrNoMem, err)
	}
	return failWith(verb, "ah_attr", ErrInvalid, err)
}
