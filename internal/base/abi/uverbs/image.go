package uverbs

import (
	"encoding/binary"
	"reflect"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// images caches the results of imageSize.
var images sync.Map // of int by reflect.Type

// imageSize returns the encoded size of a type that can be copied, and 0 for other types. A type can be copied if its
// encoding is the beginning of its memory; the encoding is encoding/binary's in the machine's byte order. That holds
// for the structures of this package, because their padding is explicit. So a copy replaces the encoding of each field.
func imageSize(t reflect.Type) int {
	if n, ok := images.Load(t); ok {
		return n.(int)
	}
	n, ok := packed(t)
	if !ok {
		n = 0
	}
	images.Store(t, n)
	return n
}

// packed returns the encoded size of a type, and whether each field has the same offset in memory and in the encoding.
func packed(t reflect.Type) (size int, ok bool) {
	switch t.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return int(t.Size()), true
	case reflect.Array:
		n, ok := packed(t.Elem())
		return n * t.Len(), ok && n == int(t.Elem().Size())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			n, ok := packed(f.Type)
			if !ok || int(f.Offset) != size {
				return 0, false
			}
			size += n
		}
		return size, true
	}
	return 0, false
}

// decode is DecodeInto for a type known at compile time; v need not be on the heap.
func decode[T any](b []byte, v *T) error {
	n := imageSize(reflect.TypeFor[T]())
	if n == 0 {
		var w T // binary.Decode lets its argument escape
		_, err := binary.Decode(b, binary.NativeEndian, &w)
		*v = w
		return err
	}
	if len(b) < n {
		return unix.EINVAL
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(v)), n), b)
	return nil
}

// DecodeInto fills the structure that v points to from the beginning of b. Too few bytes are an error, excess bytes are
// not.
func DecodeInto(b []byte, v any) error {
	p := reflect.ValueOf(v)
	n := imageSize(p.Type().Elem())
	if n == 0 {
		_, err := binary.Decode(b, binary.NativeEndian, v)
		return err
	}
	if len(b) < n {
		return unix.EINVAL
	}
	copy(unsafe.Slice((*byte)(p.UnsafePointer()), n), b)
	return nil
}

// appendOne appends a structure.
func appendOne(b []byte, v any) ([]byte, error) {
	t := reflect.TypeOf(v)
	n := imageSize(t)
	if n == 0 {
		return binary.Append(b, binary.NativeEndian, v)
	}
	// An interface value is a type and, unless it is a pointer, the address of the value.
	at := (*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1]
	return append(b, unsafe.Slice((*byte)(at), n)...), nil
}
