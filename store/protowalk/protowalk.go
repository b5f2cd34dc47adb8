// Package protowalk reads encoded protobuf messages field by field, without decoding them into objects. It suits
// messages that are long or untrusted, or of which only one field is needed. It needs the whole message in one slice.
//
// Owns: nothing; results are parts of the input. Reads: google.golang.org/protobuf/encoding/protowire. Never: uses a
// schema.
package protowalk

import "google.golang.org/protobuf/encoding/protowire"

// Field is one field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Bytes  []byte // content of a length-delimited field, not nil, shared with the message; nil for other types
	Varint uint64 // value of a varint; 0 for other types
}

// Short reads the first field of b if the field is short: length-delimited, with a tag of one byte, and smaller than 16
// KiB with its tag and length. Short returns the field's number. The content is b[from:end], and the next field begins
// at b[end]. If b has less than three bytes, is malformed, or begins with a different field, all results are 0. Use
// Next in these cases. Short is small, so that the compiler inlines it into loops.
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

// Next reads the first field of b. The result n is the length of the field including its tag, so the next field is at
// b[n:]. If b is empty or does not begin with a complete, valid field, n is a negative code for protowire.ParseError.
// In this case f has no content.
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

// Each calls the function do for every field of a message, in the order of the wire. For an empty message it does
// nothing. It stops at the first error, and returns the error. The error is that of do, or one of protowire if the
// message is malformed. The input may be untrusted.
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
