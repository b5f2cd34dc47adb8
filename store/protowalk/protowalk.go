// Package protowalk reads encoded protobuf messages field by field, without making an object of them: for messages that are long, come from
// anybody, or are read for one field of many.
//
// Two packages have readers of their own, because what they read is not one piece of memory: shard/relay walks the buffers that gRPC hands
// over, and loadtest/proxy reads fields of which only a part has arrived.
//
// Owns: nothing; what it returns are parts of what it was given.  Reads: google.golang.org/protobuf/encoding/protowire.  Never: a schema.
package protowalk

import "google.golang.org/protobuf/encoding/protowire"

// Field is one field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Bytes  []byte // of a length-delimited one: a part of the message, not nil; else nil
	Varint uint64 // of a varint; else 0
}

// Next takes the first field off b, which must not be empty. n is its length with the tag; a negative one is the code for
// protowire.ParseError: b does not begin with a whole field.
func Next(b []byte) (f Field, n int) {
	if len(b) > 2 && b[0] > 7 && b[0] < 0x80 && b[0]&7 == byte(protowire.BytesType) { // as almost all are: a short tag, less than 16 KB
		size, from := int(b[1]), 2
		if size >= 0x80 {
			size, from = size&0x7f|int(b[2])<<7, 3
		}
		if size < 1<<14 && from+size <= len(b) {
			return Field{Number: protowire.Number(b[0] >> 3), Type: protowire.BytesType, Bytes: b[from : from+size : from+size]}, from + size
		}
	}
	number, kind, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return Field{}, tag
	}
	f = Field{Number: number, Type: kind}
	switch kind {
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(b[tag:])
		f.Bytes = f.Bytes[:len(f.Bytes):len(f.Bytes)]
	case protowire.VarintType:
		f.Varint, n = protowire.ConsumeVarint(b[tag:])
	default:
		n = protowire.ConsumeFieldValue(number, kind, b[tag:])
	}
	if n < 0 {
		return Field{Number: number, Type: kind}, n
	}
	return f, tag + n
}

// Each calls do for every field of a message, in the order of the wire, and stops at the first error: do's, or one of protowire where
// the message is malformed. It takes bytes from anywhere.
func Each(b []byte, do func(Field) error) error {
	for len(b) > 0 {
		f, n := Next(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := do(f); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
