package ring

import "google.golang.org/protobuf/encoding/protowire"

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
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var number uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := do(field, number, bytes); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}
