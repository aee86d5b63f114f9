package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"roced.io/roced/bth/mad"
	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
)

// value is the value of an expression: a number, bytes, a text, or a part of a memory region.
type value struct {
	kind  valueKind
	num   uint64
	bytes []byte
	text  string
	ref   memoryPart
}

type valueKind uint8

const (
	isNumber valueKind = iota
	isBytes
	isText
	isMemory
	isDuration
)

// memoryPart is a part of a memory region of the device.
type memoryPart struct {
	region   string
	from, to uint64
}

func numberOf(v uint64) value { return value{kind: isNumber, num: v} }
func bytesOf(b []byte) value  { return value{kind: isBytes, bytes: b} }

func durationOf(d time.Duration) value { return value{kind: isDuration, num: uint64(d)} }

// String returns the value as reports show it.
func (v value) String() string {
	switch v.kind {
	case isBytes:
		return fmt.Sprintf("%d bytes %x", len(v.bytes), v.bytes[:min(len(v.bytes), 8)])
	case isText:
		return v.text
	case isDuration:
		return time.Duration(v.num).String()
	case isMemory:
		return fmt.Sprintf("%s[%d:%d]", v.ref.region, v.ref.from, v.ref.to)
	}
	return fmt.Sprintf("%#x", v.num)
}

// maxBytes bounds the values of a script.
const maxBytes = 16 << 20

// fail ends the evaluation with an error at a place of the script. The engine recovers it.
func (e *Engine) fail(at script.Pos, format string, args ...any) {
	panic(&script.Error{Path: e.script.Path, Pos: at, Text: fmt.Sprintf(format, args...)})
}

// eval evaluates an expression.
func (e *Engine) eval(x script.Expr) value {
	switch x := x.(type) {
	case *script.Number:
		return numberOf(x.Value)
	case *script.Duration:
		return durationOf(x.Value)
	case *script.Text:
		return value{kind: isText, text: x.Value}
	case *script.Name:
		return e.lookup(x)
	case *script.Binary:
		return e.binary(x)
	case *script.Slice:
		return e.slice(x)
	case *script.Function:
		f := functions[x.Name]
		args := make([]value, len(x.Args))
		for i := range x.Args {
			args[i] = e.argument(x, f, i)
		}
		v, err := f.call(e, args)
		if err != nil {
			e.fail(x.Pos, "%s: %v", x.Name, err)
		}
		e.steps += len(v.bytes) >> 10
		return v
	}
	panic(fmt.Sprintf("unknown expression %T", x))
}

// lookup returns the value of a name: a variable, an attribute of an object or of a labelled packet, or the name of a syndrome.
func (e *Engine) lookup(x *script.Name) value {
	if v, ok := e.env[x.Name]; ok {
		return v
	}
	if label, field, ok := strings.Cut(x.Name, "."); ok {
		if l, ok := e.labels[label]; ok && field == "time" {
			return durationOf(time.Duration(l.at))
		}
		if f := e.labels[label].frame; f != nil {
			if field == "payload" {
				return bytesOf(f.Payload)
			}
			if v, ok := f.Get(field); ok {
				return numberOf(v)
			}
		}
	}
	if s, ok := frame.Syndromes[x.Name]; ok {
		return numberOf(uint64(s))
	}
	if m, ok := frame.Messages[x.Name]; ok {
		return numberOf(uint64(m))
	}
	e.fail(x.Pos, "%s is not defined here", x.Name)
	return value{}
}

// number evaluates an expression that has to be a number.
func (e *Engine) number(x script.Expr) uint64 {
	v := e.eval(x)
	if v.kind != isNumber {
		e.fail(x.At(), "%v is not a number", v)
	}
	return v.num
}

// duration evaluates an expression that has to be a duration; nil is 0.
func (e *Engine) duration(x script.Expr) time.Duration {
	if x == nil {
		return 0
	}
	v := e.eval(x)
	if v.kind != isDuration || v.num > math.MaxInt64 {
		e.fail(x.At(), "%v is not a duration such as 20ms", v)
	}
	return time.Duration(v.num)
}

// unit returns the kind of the result of an operation on numbers and durations. ok is false if there is none.
func unit(a, b valueKind, op string) (kind valueKind, ok bool) {
	switch {
	case a == isDuration && b == isDuration:
		return map[string]valueKind{"/": isNumber, "+": isDuration, "-": isDuration}[op], op == "/" || op == "+" || op == "-"
	case a == isDuration && b == isNumber:
		return isDuration, op == "*" || op == "/" || op == "<<" || op == ">>"
	case a == isNumber && b == isDuration:
		return isDuration, op == "*"
	}
	return isNumber, a == isNumber && b == isNumber
}

func (e *Engine) binary(x *script.Binary) value {
	a, b := e.eval(x.X), e.eval(x.Y)
	kind, ok := unit(a.kind, b.kind, x.Op)
	if !ok {
		if ab, bb, ok := e.content(a), e.content(b), x.Op == "+"; ok && ab != nil && bb != nil {
			if len(ab)+len(bb) > maxBytes {
				e.fail(x.Pos, "%d and %d bytes together exceed %d, the most that a value has", len(ab), len(bb), maxBytes)
			}
			e.steps += (len(ab) + len(bb)) >> 10
			return bytesOf(append(bytes.Clone(ab), bb...)) // concatenation
		}
		e.fail(x.Pos, "%v %s %v: neither numbers nor durations", a, x.Op, b)
	}
	n := a.num
	switch x.Op {
	case "+":
		n += b.num
	case "-":
		n -= b.num
	case "*":
		n *= b.num
	case "<<":
		n <<= b.num
	case ">>":
		n >>= b.num
	case "&":
		n &= b.num
	case "|":
		n |= b.num
	default: // / and %
		if b.num == 0 {
			e.fail(x.Pos, "division by zero")
		}
		if n = a.num / b.num; x.Op == "%" {
			n = a.num % b.num
		}
	}
	return value{kind: kind, num: n}
}

// slice evaluates "x[from:to]": a part of a region, or of bytes.
func (e *Engine) slice(x *script.Slice) value {
	var b []byte
	n, named := x.Of.(*script.Name)
	if named && e.regions[n.Name] != nil {
		b = e.regions[n.Name]
	} else if v := e.eval(x.Of); v.kind == isBytes {
		named, b = false, v.bytes
	} else {
		e.fail(x.Pos, "%v is neither a memory region nor bytes", v)
	}
	from, to := uint64(0), uint64(len(b))
	if x.From != nil {
		from = e.number(x.From)
	}
	if x.To != nil {
		to = e.number(x.To)
	}
	if from > to || to-from > maxBytes || !named && to > uint64(len(b)) {
		e.fail(x.Pos, "[%d:%d] is outside of %d bytes", from, to, len(b))
	}
	if named { // a part beyond the end of a region is a valid test
		return value{kind: isMemory, ref: memoryPart{n.Name, from, to}}
	}
	return bytesOf(b[from:to])
}

// content returns bytes, or the initial content of a part of a memory region. It returns nil for other values.
func (e *Engine) content(v value) []byte {
	switch v.kind {
	case isBytes:
		return v.bytes
	case isMemory:
		r := e.regions[v.ref.region]
		if v.ref.to <= uint64(len(r)) {
			return r[v.ref.from:v.ref.to]
		}
	}
	return nil
}

// function is a function of the language.
type function struct {
	args int
	kind valueKind // of the arguments
	bits int       // of the last argument
	call func(e *Engine, args []value) (value, error)
	doc  string
}

// functions of the language. Byte functions return the same bytes for the same arguments and seed.
var functions = map[string]function{
	"rand": {1, isNumber, 64, func(e *Engine, a []value) (value, error) {
		return filled(a[0], func(b []byte) {
			for i := range b {
				b[i] = byte(e.rng.Uint32())
			}
		})
	}, "rand(n): n random bytes, which depend on the seed"},
	"count": {1, isNumber, 64, func(_ *Engine, a []value) (value, error) {
		return filled(a[0], count)
	}, "count(n): the bytes 0, 1, 2, ... as of fill=count"},
	"fill": {2, isNumber, 8, func(_ *Engine, a []value) (value, error) {
		return filled(a[0], func(b []byte) {
			for i := range b {
				b[i] = byte(a[1].num)
			}
		})
	}, "fill(n, v): n bytes of the value v"},
	"hex": {1, isText, 0, func(_ *Engine, a []value) (value, error) {
		b, err := hex.DecodeString(strings.ReplaceAll(a[0].text, " ", ""))
		return bytesOf(b), err
	}, `hex("00 ff"): these bytes`},
	"cm": {1, isNumber, 16, func(e *Engine, a []value) (value, error) {
		from, to := e.addresses()
		return bytesOf(frame.Message(mad.Attr(a[0].num), from, to, e.o.ID)), nil
	}, "cm(REQ): a message of the connection manager as payload of a datagram. A REQ has the addresses of both ends and a GUID, a SIDR_REQ the addresses; other fields are zero"},
	"be32": {1, isNumber, 32, func(_ *Engine, a []value) (value, error) {
		return bytesOf(binary.BigEndian.AppendUint32(nil, uint32(a[0].num))), nil
	}, "be32(v): four bytes, most significant first"},
	"be64": {1, isNumber, 64, func(_ *Engine, a []value) (value, error) {
		return bytesOf(binary.BigEndian.AppendUint64(nil, a[0].num)), nil
	}, "be64(v): eight bytes, most significant first"},
	"host64": {1, isNumber, 64, func(_ *Engine, a []value) (value, error) {
		return bytesOf(binary.NativeEndian.AppendUint64(nil, a[0].num)), nil
	}, "host64(v): eight bytes as a program of this machine stores a number"},
	"addr": {1, isText, 0, func(_ *Engine, a []value) (value, error) {
		ip, err := netip.ParseAddr(a[0].text)
		return bytesOf(ip.AsSlice()), err
	}, `addr("198.18.0.9"): the bytes of an IP address`},
}

// argument evaluates argument i of a function.
func (e *Engine) argument(x *script.Function, f function, i int) value {
	v := e.eval(x.Args[i])
	if v.kind != f.kind {
		e.fail(x.Args[i].At(), "%s: %v is not %s", x.Name, v, map[valueKind]string{isNumber: "a number", isText: "text in quotation marks"}[f.kind])
	}
	if i == f.args-1 {
		e.fit(x.Args[i].At(), "argument", x.Name, v, f.bits)
	}
	return v
}

// fit ends the evaluation if a number has more bits than its place: a field, a key or the argument of a function.
func (e *Engine) fit(at script.Pos, place, name string, v value, bits int) {
	if v.kind == isNumber && bits < 64 && v.num>>bits != 0 {
		e.fail(at, "%s=%v: the %s has %d bits", name, v, place, bits)
	}
}

// filled returns as many bytes as n says, with the content of f.
func filled(n value, f func([]byte)) (value, error) {
	if n.num > maxBytes {
		return value{}, fmt.Errorf("%v is not a number of bytes up to %d", n, maxBytes)
	}
	b := make([]byte, n.num)
	f(b)
	return bytesOf(b), nil
}

// count fills b with 0, 1, 2 and so on. The period of 251 bytes makes every packet of a message differ.
func count(b []byte) {
	for i := range b {
		b[i] = byte(i % 251)
	}
}

// newRNG returns the random numbers of a seed.
func newRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x726f6365)) }
