package rocev2

import (
	"errors"
	"fmt"

	"roced.io/roced/rocev2/object"
)

// fail returns err with the verb and the attribute at fault.
func fail(verb, attr string, err error) error { return object.Fail(verb, attr, err) }

// failWith is fail for an error of a part of the NIC, which errors.Is still recognises.
func failWith(verb, attr string, class, err error) error {
	return fmt.Errorf("%s: %s: %w: %w", verb, attr, class, err)
}

// failPath is failWith for an unusable address vector.
func failPath(verb string, err error) error {
	if errors.Is(err, ErrNeighbours) {
		return failWith(verb, "ah_attr", ErrNoMem, err)
	}
	return failWith(verb, "ah_attr", ErrInvalid, err)
}
