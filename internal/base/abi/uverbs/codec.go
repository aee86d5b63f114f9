package uverbs

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxMessage is the longest request and the longest answer.
const MaxMessage = 16 << 10

// Size returns the encoded size of T.
func Size[T any]() int {
	var v T
	return binary.Size(&v)
}

// Decode reads a T from the beginning of b. Too few bytes are an error, more are
// not: a provider's part may follow.
func Decode[T any](b []byte) (T, error) {
	var v T
	if err := decode(b, &v); err != nil {
		return v, fmt.Errorf("uverbs: %T of %d bytes: %w", v, len(b), unix.EINVAL)
	}
	return v, nil
}

// DecodeEx reads the structure of an extended command, whose length depends on
// the age of the caller: it has to have least bytes, what it lacks is zero, and
// what it has more must be zero.
func DecodeEx[T any](b []byte, least int) (T, error) {
	size := Size[T]()
	if len(b) < least {
		var v T
		return v, fmt.Errorf("uverbs: %T of %d bytes: %w", v, len(b), unix.ENOSPC)
	}
	for _, c := range b[min(size, len(b)):] {
		if c != 0 {
			var v T
			return v, fmt.Errorf("uverbs: %T with unknown fields: %w", v, unix.EOPNOTSUPP)
		}
	}
	if len(b) < size {
		b = append(make([]byte, 0, size), b...)[:size]
	}
	return Decode[T](b)
}

// Append appends structures to b. They must be of fixed size.
func Append(b []byte, vs ...any) []byte {
	for _, v := range vs {
		var err error
		if b, err = appendOne(b, v); err != nil {
			panic(err) // v is not a structure of this package
		}
	}
	return b
}

// Command encodes a command of which the response takes out bytes at most. The
// bodies are its structure and the provider's part; their sizes must make up
// whole words.
func Command(number uint32, out int, bodies ...any) []byte {
	b := Append(make([]byte, HdrLen, 128), bodies...)
	binary.NativeEndian.PutUint32(b, number)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(b)/4))
	binary.NativeEndian.PutUint16(b[6:], uint16((out+3)/4))
	return b
}

// ExCommand encodes an extended command of which the response takes out bytes at
// most; it has no provider's part. The size of core must make up whole words of 8
// bytes.
func ExCommand(number uint32, out int, core any) []byte {
	b := Append(make([]byte, HdrLen, 256), ExHdr{}, core)
	binary.NativeEndian.PutUint32(b, number|FlagExtended)
	binary.NativeEndian.PutUint16(b[4:], uint16((len(b)-HdrLen-ExHdrLen)/8))
	binary.NativeEndian.PutUint16(b[6:], uint16((out+7)/8))
	return b
}

// Request is a command as received. Its slices point into the datagram.
type Request struct {
	Command  uint32 // the number, without FlagExtended
	Extended bool
	// Body is the command structure. Unless Extended, the provider's part follows
	// in it; then it is in Provider.
	Body     []byte
	Provider []byte
	// Out is the room for the response. In an extended command ProviderOut bytes
	// are room for the provider's part, behind it.
	Out         int
	ProviderOut int
	FDs         []int // received; the receiver closes them
}

// ParseRequest takes a datagram apart and checks it as the kernel checks what is
// written to it.
func ParseRequest(b []byte) (Request, error) {
	h, err := Decode[Hdr](b)
	if err != nil {
		return Request{}, err
	}
	r := Request{Command: h.Command & CommandMask, Extended: h.Command&FlagExtended != 0}
	if h.Command&^(CommandMask|FlagExtended) != 0 {
		return r, fmt.Errorf("uverbs: command %#x: %w", h.Command, unix.EINVAL)
	}
	if !r.Extended {
		if int(h.InWords)*4 != len(b) {
			return r, fmt.Errorf("uverbs: %d words in %d bytes: %w", h.InWords, len(b), unix.EINVAL)
		}
		r.Body, r.Out = b[HdrLen:], int(h.OutWords)*4
		return r, nil
	}
	ex, err := Decode[ExHdr](b[HdrLen:])
	if err != nil {
		return r, err
	}
	body := b[HdrLen+ExHdrLen:]
	core := int(h.InWords) * 8
	if core+int(ex.ProviderInWords)*8 != len(body) || ex.CmdHdrReserved != 0 {
		return r, fmt.Errorf("uverbs: extended command of %d bytes: %w", len(b), unix.EINVAL)
	}
	r.Body, r.Provider = body[:core], body[core:]
	r.Out, r.ProviderOut = int(h.OutWords)*8, int(ex.ProviderOutWords)*8
	return r, nil
}

// Reply puts a response together from the command's structure and the provider's
// part, which may be nil: the latter begins behind the structure or, in an
// extended command, where the caller's idea of the structure ends. What the caller
// has no room for is cut off; a plain command must have room for the structure.
func (r *Request) Reply(core, provider any) ([]byte, error) {
	b := Append(nil, core)
	if r.Extended {
		if len(b) < r.Out && provider != nil {
			b = append(b, make([]byte, r.Out-len(b))...)
		}
		b = b[:min(len(b), r.Out)]
	} else if len(b) > r.Out {
		return nil, fmt.Errorf("uverbs: response of %d bytes for %d: %w", len(b), r.Out, unix.ENOSPC)
	}
	if provider == nil {
		return b, nil
	}
	b = Append(b, provider)
	return b[:min(len(b), r.Out+r.ProviderOut)], nil
}
