package ring

import (
	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/protowalk"
)

// AppendUint adds a field that is a varint to an encoded message.
func AppendUint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// AppendText adds a field that is a string to an encoded message.
func AppendText(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// Fields calls do for each field of an encoded message: varints as numbers, strings and messages as bytes, which are parts of
// b; fields of other kinds are passed over. It takes bytes from anywhere, and stops at the first error, its own or of do.
func Fields(b []byte, do func(field protowire.Number, number uint64, bytes []byte) error) error {
	return protowalk.Each(b, func(f protowalk.Field) error {
		if f.Type != protowire.VarintType && f.Type != protowire.BytesType {
			return nil
		}
		return do(f.Number, f.Varint, f.Bytes)
	})
}
