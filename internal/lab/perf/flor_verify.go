package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"roced.io/roced/flor"
)

// In a verified call the request and the answer are pseudo-random streams of the same length. Each begins with the
// word that determines the rest. The answer's first word is the complement of the request's.
const verifyLeast = 8 // bytes

var (
	errSpoiltAnswer  = errors.New("verification: the answer differs from the expected bytes")
	errSpoiltRequest = errors.New("verification: the server received a request with wrong bytes")
)

// isStream reports whether b is the stream that begins with x.
func isStream(b []byte, x uint64) bool { return differsFrom(b, x) < 0 }

// verified makes a call and checks every byte of the answer. The server checks the request.
func verified(ctx context.Context, c *flor.Conn, size int) error {
	m, err := c.NewMessage(ctx, size)
	if err != nil {
		return err
	}
	x := rand.Uint64()
	fillFrom(m.Data, x)
	answer, err := c.Call(ctx, m)
	if err != nil {
		return err
	}
	defer answer.Release()
	switch {
	case len(answer.Data) == 0:
		return errSpoiltRequest
	case len(answer.Data) != size || !isStream(answer.Data, ^x):
		return errSpoiltAnswer
	}
	return nil
}

// answerVerified answers a verified call. The answer is empty if a byte of the request is wrong.
func answerVerified(ctx context.Context, c *flor.Conn, request *flor.Message) error {
	size, x := 0, uint64(0)
	if len(request.Data) >= verifyLeast {
		if x = binary.LittleEndian.Uint64(request.Data); isStream(request.Data, x) {
			size = len(request.Data)
		}
	}
	answer, err := c.NewMessage(ctx, size)
	if err != nil {
		return err
	}
	fillFrom(answer.Data, ^x)
	return request.PostReply(ctx, answer, nil)
}
