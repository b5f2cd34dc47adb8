package ring

import (
	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/protowalk"
)

// AppendUint appends a varint field, also with the value 0, to an encoded message.
func AppendUint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// AppendText appends a string field, also an empty one, to an encoded message.
func AppendText(b []byte, field protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// Fields calls the function do for each varint and each length-delimited field of an encoded message. The function
// receives a varint as number, and a string or message as bytes, which alias b. Fields of other types are skipped. b
// may be untrusted. Fields stops at the first error: that of do, or one that reports that b is malformed.
func Fields(b []byte, do func(field protowire.Number, number uint64, bytes []byte) error) error {
	return protowalk.Each(b, func(f protowalk.Field) error {
		if f.Type != protowire.VarintType && f.Type != protowire.BytesType {
			return nil
		}
		return do(f.Number, f.Varint, f.Bytes)
	})
}
