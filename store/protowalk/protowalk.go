// Package protowalk reads encoded protobuf messages field by field, without making an object of them: for messages that are long, come from
// anybody, or are read for one field of many.
//
// Two packages have readers of their own, because what they read is not one piece of memory: shard/relay walks the buffers that gRPC hands
// over, and loadtest/proxy reads fields of which only a part has arrived.
//
// Owns: nothing; what it returns are parts of what it was given.  Reads: google.golang.org/protobuf/encoding/protowire.  Never: a schema.
//
// Requests of proxies are the reason for this package: push/delta sums up their names and versions without an
// allocation.
package protowalk

import "google.golang.org/protobuf/encoding/protowire"

// Field is one field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Bytes  []byte // of a length-delimited one: a part of the message, not nil; else nil
	Varint uint64 // of a varint; else 0
}

// Short is where the first field of b begins and ends, its tag aside, if it is as almost all are: length-delimited, with a short tag, and of less than
// 16 KB. end is 0 where it is not: Next is for all. The compiler puts it into its callers' loops.
func Short(b []byte) (number protowire.Number, from, end int) {
	if len(b) < 3 || b[0]&0x87 != byte(protowire.BytesType) || b[0] < 8 {
		return 0, 0, 0
	}
	from, end = 2, int(b[1])
	if end >= 0x80 {
		from, end = 3, end&0x7f|int(b[2])<<7
	}
	if end += from; end > len(b) || end >= 1<<14 {
		return 0, 0, 0
	}
	return protowire.Number(b[0] >> 3), from, end
}

// Next takes the first field off b, which must not be empty. n is its length with the tag; a negative one is the code for
// protowire.ParseError: b does not begin with a whole field.
func Next(b []byte) (f Field, n int) {
	if number, from, end := Short(b); end > 0 {
		return Field{Number: number, Type: protowire.BytesType, Bytes: b[from:end:end]}, end
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
