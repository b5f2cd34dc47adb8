package proxy

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// garbage returns a response whose second field states a length beyond the end of the message.
func garbage() proto.Message {
	m := &discoveryv3.DeltaDiscoveryResponse{}
	b := protowire.AppendTag(nil, 2, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte{2<<3 | 2, 100, 1})
	m.ProtoReflect().SetUnknown(b)
	return m
}
