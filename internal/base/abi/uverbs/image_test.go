package uverbs

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

// TestImages: a copied structure equals its form by encoding/binary, except in reserved fields, which encoding/binary
// skips.
func TestImages(t *testing.T) {
	for _, l := range layouts {
		typ := reflect.TypeOf(l.v)
		if n := imageSize(typ); n != binary.Size(l.v) {
			t.Errorf("%v is copied as %d bytes, and has %d", typ, n, binary.Size(l.v))
		}
		in := make([]byte, binary.Size(l.v)+3)
		for i := range in {
			in[i] = byte(i + 1)
		}
		copied, decoded := reflect.New(typ), reflect.New(typ)
		if err := DecodeInto(in, copied.Interface()); err != nil {
			t.Errorf("%v: %v", typ, err)
		}
		if _, err := binary.Decode(in, binary.NativeEndian, decoded.Interface()); err != nil {
			t.Fatal(err)
		}
		plain, err := binary.Append(nil, binary.NativeEndian, copied.Elem().Interface())
		if err != nil {
			t.Fatal(err)
		}
		if want := Append(nil, decoded.Elem().Interface()); !bytes.Equal(plain, want) {
			t.Errorf("%v is % x, and should be % x", typ, plain, want)
		}
		if err := DecodeInto(in[:len(in)-4], copied.Interface()); err == nil {
			t.Errorf("%v of a byte too few is decoded", typ)
		}
	}
}

// TestNoImage: encoding/binary encodes the types whose memory layout differs from their encoding.
func TestNoImage(t *testing.T) {
	type padded struct {
		A uint8
		B uint32
	}
	if n := imageSize(reflect.TypeFor[padded]()); n != 0 {
		t.Errorf("a structure with padding is copied as %d bytes", n)
	}
	b := Append(nil, padded{1, 2})
	if v, err := Decode[padded](b); len(b) != 5 || err != nil || v != (padded{1, 2}) {
		t.Errorf("% x, %+v, %v", b, v, err)
	}
}
