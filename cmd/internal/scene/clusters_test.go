package scene

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// clustersIn lists the clusters that a route configuration or a listener sends to, wherever in it they are named.
func clustersIn(r *xds.Resource) []string {
	m, err := inspect.Message(r)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	add := func(name string) {
		if name != "" {
			out = append(out, name)
		}
	}
	visit(m, func(m proto.Message) {
		switch m := m.(type) {
		case *routev3.RouteAction:
			add(m.GetCluster())
		case *routev3.WeightedCluster_ClusterWeight:
			add(m.GetName())
		case *routev3.RouteAction_RequestMirrorPolicy:
			add(m.GetCluster())
		case *tcpv3.TcpProxy:
			add(m.GetCluster())
		case *tcpv3.TcpProxy_WeightedCluster_ClusterWeight:
			add(m.GetName())
		}
	})
	return out
}

// visit calls f with a message and all that is in it, Anys opened.
func visit(m proto.Message, f func(proto.Message)) {
	if a, ok := m.(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return
		}
		m = inner
	}
	f(m)
	m.ProtoReflect().Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.IsMap() && d.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				visit(v.Message().Interface(), f)
				return true
			})
		case d.IsList() && d.Message() != nil:
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message().Interface(), f)
			}
		case d.Message() != nil && !d.IsMap():
			visit(v.Message().Interface(), f)
		}
		return true
	})
}
