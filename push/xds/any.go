package xds

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// unmarshallable is no UTF-8: an Any with this type URL is refused by every encoder.
const unmarshallable = "\xff"

// Any packs a message deterministically: equal messages, equal bytes. A message that does not marshal gives an Any that
// does not either, so the fault comes out as the error of Encode and not as a broken resource.
func Any(m proto.Message) *anypb.Any {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return &anypb.Any{TypeUrl: unmarshallable}
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}
