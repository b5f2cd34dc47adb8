package dump

import (
	"encoding/json"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"navarch.io/navarch/push/xds"
)

// decode decodes a resource. It omits fields, enum values and extensions that this program does not know, since the
// proxy may be newer than this program. The error reports that raw is not a resource of the type. The argument t must
// not be xds.Unknown.
func decode(t xds.Type, raw json.RawMessage) (proto.Message, error) {
	var m proto.Message
	switch t {
	case xds.Cluster:
		m = &clusterv3.Cluster{}
	case xds.Endpoint:
		m = &endpointv3.ClusterLoadAssignment{}
	case xds.Listener:
		m = &listenerv3.Listener{}
	case xds.Route:
		m = &routev3.RouteConfiguration{}
	case xds.Secret:
		m = &tlsv3.Secret{}
	case xds.Extension:
		m = &corev3.TypedExtensionConfig{}
	}
	if err := tolerant.Unmarshal(raw, m); err != nil {
		return nil, err
	}
	return m, nil
}

var tolerant = protojson.UnmarshalOptions{DiscardUnknown: true, AllowPartial: true, Resolver: resolver{protoregistry.GlobalTypes}}

// resolver resolves the type URL of an Any. An unknown type becomes a message without fields.
type resolver struct{ *protoregistry.Types }

// FindMessageByURL returns the message type for a URL. For an unknown URL it returns the type AggregatedConfigSource,
// which has no fields. The error is always nil.
func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if known, err := r.Types.FindMessageByURL(url); err == nil {
		return known, nil
	}
	return (&corev3.AggregatedConfigSource{}).ProtoReflect().Type(), nil
}
