package config

import (
	"fmt"
	"os/user"

	"roced.io/roced/internal/base/sched"
	"roced.io/roced/rocev2"
)

// Share sets the shares of a NIC's link under contention. Users share the link in proportion to their weights. The
// connections of a user get equal shares, and so do the queue pairs of a connection.
type Share struct {
	// Quantum is the number of bytes that a queue pair sends in its turn; 0: slightly more than the longest
	// super-frame.
	Quantum Bytes       `yaml:"quantum"`
	Users   []UserShare `yaml:"users"` // others have weight 1 in class 0
}

// UserShare is the share of one user.
type UserShare struct {
	User   string `yaml:"user"`   // name or number
	Weight int    `yaml:"weight"` // 0 means 1
	Class  int    `yaml:"class"`  // strict priority: a higher class goes first

	UID uint32 `yaml:"-"` // numeric ID of User, set by Validate
}

// Limits of a share. A turn is the quantum times the weight, and all other users wait for its end.
const (
	maxWeight  = 1000
	minQuantum = 4 << 10
	maxQuantum = 16 << 20
)

func (s *Share) validate(f *faults, path string) {
	if s.Quantum != 0 && (s.Quantum < minQuantum || s.Quantum > maxQuantum) {
		f.add(path+".quantum", "%d is not between %d and %d", s.Quantum, minQuantum, maxQuantum)
	}
	seen := map[uint32]bool{}
	for i := range s.Users {
		u, at := &s.Users[i], fmt.Sprintf("%s.users.%d", path, i)
		if u.Weight < 0 || u.Weight > maxWeight {
			f.add(at+".weight", "%d is not between 1 and %d", u.Weight, maxWeight)
		}
		if u.Class < 0 || u.Class >= sched.Classes {
			f.add(at+".class", "%d is not between 0 and %d", u.Class, sched.Classes-1)
		}
		id, err := lookUp(u.User, userID)
		if err != nil {
			f.add(at+".user", "%w", err)
			continue
		}
		if seen[id] {
			f.add(at+".user", "%s is listed twice", u.User)
		}
		u.UID, seen[id] = id, true
	}
}

// Of returns the share of a user's connection.
func (s *Share) Of(uid uint32, client uint64) rocev2.Share {
	x := rocev2.Share{User: uint64(uid), Client: client}
	for _, u := range s.Users {
		if u.UID == uid {
			x.Weight, x.Class = u.Weight, uint8(u.Class)
		}
	}
	return x
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}
