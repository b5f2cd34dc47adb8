package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// hashedAtOnce is the number of bytes that EncodeInPieces hashes without a pause.
const hashedAtOnce = 4 << 20

// EncodeInPieces returns the result of Encode for a large message. One repeated field of the message is not in m. The
// argument field is the field's number, and elements is its elements. EncodeInPieces calls the function pause after
// each element, and after each hashed piece of the encoded message. It fails only if a string is not valid UTF-8. The
// error names the type and the resource.
func EncodeInPieces(
	t Type, name string, m proto.Message, field protowire.Number, elements []proto.Message, pause func(), needs ...Ref,
) (*Resource, error) {
	rest, err := deterministic.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %v %s: %w", t, name, err)
	}
	before, size, sizes := offsetAfter(rest, field), len(rest), make([]int, len(elements))
	for i, one := range elements {
		sizes[i] = proto.Size(one)
		size += protowire.SizeTag(field) + protowire.SizeBytes(sizes[i])
		pause()
	}
	b := append(make([]byte, 0, size), rest[:before]...)
	for i, one := range elements {
		b = protowire.AppendTag(b, field, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizes[i]))
		if b, err = deterministic.MarshalAppend(b, one); err != nil {
			return nil, fmt.Errorf("encode %v %s: %w", t, name, err)
		}
		pause()
	}
	b = append(b, rest[before:]...)
	sum := sha256.New()
	for at := 0; at < len(b); at += hashedAtOnce {
		sum.Write(b[at:min(at+hashedAtOnce, len(b))])
		pause()
	}
	r := &Resource{Type: t, Name: name, Version: hex.EncodeToString(sum.Sum(nil)[:16]), Needs: needs, head: b, size: len(b)}
	r.shareBody()
	return r, nil
}
