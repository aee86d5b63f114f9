package uverbs

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxMessage is the maximum length of requests and answers.
const MaxMessage = 16 << 10

// Size returns the encoded size of T.
func Size[T any]() int {
	var v T
	return binary.Size(&v)
}

// Decode reads a T from the beginning of b. Too few bytes are an error. Excess bytes are not: a provider's part may
// follow.
func Decode[T any](b []byte) (T, error) {
	var v T
	if err := decode(b, &v); err != nil {
		return v, fmt.Errorf("uverbs: %T of %d bytes: %w", v, len(b), unix.EINVAL)
	}
	return v, nil
}

// DecodeEx reads the structure of an extended command. Its length depends on the caller's version. It must have at
// least least bytes; missing bytes are zero, and excess bytes must be zero.
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

// Command encodes a command with at most out bytes of response. The bodies are its structure and the provider's part;
// their total size must be a multiple of a word.
func Command(number uint32, out int, bodies ...any) []byte {
	b := Append(make([]byte, HdrLen, 128), bodies...)
	binary.NativeEndian.PutUint32(b, number)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(b)/4))
	binary.NativeEndian.PutUint16(b[6:], uint16((out+3)/4))
	return b
}

// ExCommand encodes an extended command with at most out bytes of response and no provider's part. The size of core
// must be a multiple of 8 bytes.
func ExCommand(number uint32, out int, core any) []byte {
	b := Append(make([]byte, HdrLen, 256), ExHdr{}, core)
	binary.NativeEndian.PutUint32(b, number|FlagExtended)
	binary.NativeEndian.PutUint16(b[4:], uint16((len(b)-HdrLen-ExHdrLen)/8))
	binary.NativeEndian.PutUint16(b[6:], uint16((out+7)/8))
	return b
}

// Request is a received command. Its slices point into the datagram.
type Request struct {
	Command  uint32 // the number, without FlagExtended
	Extended bool
	// Body is the command structure. Unless Extended, Body includes the provider's part; otherwise it is in Provider.
	Body     []byte
	Provider []byte
	// Out is the size of the response buffer. In an extended command, ProviderOut bytes for the provider's part follow
	// it.
	Out         int
	ProviderOut int
	FDs         []int // received descriptors; the receiver closes them
}

// ParseRequest decodes a datagram and checks it as the kernel checks a written command.
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

// Reply builds a response from the command's structure and the provider's part, which may be nil. The provider's part
// follows the structure; in an extended command it follows the structure's size in the caller's version. Reply
// truncates the response to the caller's buffer; a plain command must have room for the structure.
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
