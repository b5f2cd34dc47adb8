package xds

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// unmarshallable is not valid UTF-8, so every encoder refuses an Any with this type URL.
const unmarshallable = "\xff"

// Any returns an Any with a copy of the encoded message. Equal messages make equal bytes. If a string of the message is
// not valid UTF-8, the message does not marshal. Then the result does not marshal either, so Encode fails for a message
// that contains this Any.
func Any(m proto.Message) *anypb.Any {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return &anypb.Any{TypeUrl: unmarshallable}
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}
