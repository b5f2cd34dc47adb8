package xds

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// unmarshallable is not valid UTF-8: every encoder refuses an Any with this type URL.
const unmarshallable = "\xff"

// Any encodes a message deterministically: equal messages make equal bytes. A message that does not marshal makes an
// Any that does not marshal either, so that the fault becomes an error of Encode instead of an invalid resource.
func Any(m proto.Message) *anypb.Any {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return &anypb.Any{TypeUrl: unmarshallable}
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}
