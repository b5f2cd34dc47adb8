package xds

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// unmarshallable is not valid UTF-8, so every encoder refuses an Any with this type URL.
const unmarshallable = "\xff"

// Any returns an anypb.Any that contains the encoded message m. Equal messages give equal bytes. If a string of m is
// not valid UTF-8, m cannot be encoded, and neither can the result. Encode therefore fails for each message that
// contains the result.
func Any(m proto.Message) *anypb.Any {
	b, err := deterministic.Marshal(m)
	if err != nil {
		return &anypb.Any{TypeUrl: unmarshallable}
	}
	return &anypb.Any{TypeUrl: TypeURL(m), Value: b}
}

// TypeURL returns the type URL of a message in an anypb.Any.
func TypeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}
