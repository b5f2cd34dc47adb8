package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/protowalk"
)

// needs is what a listener asks for over ADS: route configurations, and configurations of filters, each once, in order.
type needs struct {
	refs []xds.Ref
	seen map[xds.Ref]bool
}

// needsOf is what a listener asks for.
func needsOf(l *listenerv3.Listener) []xds.Ref {
	n := needs{seen: map[xds.Ref]bool{}}
	for _, chain := range append(l.FilterChains[:len(l.FilterChains):len(l.FilterChains)], l.DefaultFilterChain) {
		for _, f := range chain.GetFilters() {
			n.add(xds.Extension, f.GetName(), f.GetConfigDiscovery().GetConfigSource())
			if f.GetTypedConfig().MessageIs((*hcmv3.HttpConnectionManager)(nil)) {
				n.manager(f.GetTypedConfig().GetValue())
			}
		}
	}
	return n.refs
}

func (n *needs) add(t xds.Type, name string, from *corev3.ConfigSource) {
	if ref := (xds.Ref{Type: t, Name: name}); name != "" && from.GetAds() != nil && !n.seen[ref] {
		n.seen[ref] = true
		n.refs = append(n.refs, ref)
	}
}

// Fields by which a connection manager asks for something.
var (
	rdsField       = numberOf(&hcmv3.HttpConnectionManager{}, "rds")
	filtersField   = numberOf(&hcmv3.HttpConnectionManager{}, "http_filters")
	discoveryField = numberOf(&hcmv3.HttpFilter{}, "config_discovery")
)

func numberOf(m proto.Message, field protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(field).Number()
}

// manager adds what an encoded connection manager asks for, its routes first. It is long, and may have its routes in it: only the fields that ask
// are decoded. Of bytes that are no message only the beginning is read.
func (n *needs) manager(encoded []byte) {
	var filters [][]byte
	_ = protowalk.Each(encoded, func(f protowalk.Field) error {
		switch {
		case f.Number == filtersField && has(f.Bytes, discoveryField):
			filters = append(filters, f.Bytes)
		case f.Number == rdsField:
			rds := &hcmv3.Rds{}
			if err := proto.Unmarshal(f.Bytes, rds); err != nil {
				return err
			}
			n.add(xds.Route, rds.GetRouteConfigName(), rds.GetConfigSource())
		}
		return nil
	})
	for _, encoded := range filters {
		if h := (&hcmv3.HttpFilter{}); proto.Unmarshal(encoded, h) == nil {
			n.add(xds.Extension, h.GetName(), h.GetConfigDiscovery().GetConfigSource())
		}
	}
}

// has says whether an encoded message has a field.
func has(encoded []byte, field protowire.Number) (found bool) {
	_ = protowalk.Each(encoded, func(f protowalk.Field) error {
		found = found || f.Number == field
		return nil
	})
	return found
}
