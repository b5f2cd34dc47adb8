package ring

import (
	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/protowalk"
)

// AppendUint appends a varint field to an encoded message. It appends the field even if the value is 0.
func AppendUint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// AppendText appends a string field to an encoded message. It appends the field even if the string is empty.
func AppendText(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// Fields calls the function do for each varint and each length-delimited field of an encoded message. The function
// receives a varint in number, and a string or message in bytes, which alias b. Fields of other types are skipped. The
// message may be untrusted. Fields stops at the first error. The error comes from the function, or reports that the
// message is malformed.
func Fields(b []byte, do func(field protowire.Number, number uint64, bytes []byte) error) error {
	return protowalk.Each(b, func(f protowalk.Field) error {
		if f.Type != protowire.VarintType && f.Type != protowire.BytesType {
			return nil
		}
		return do(f.Number, f.Varint, f.Bytes)
	})
}
