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

// references collects the route configurations (RDS) and filter configurations (ECDS) that a listener requests over
// ADS.
type references struct {
	refs []xds.Ref        // each once, in the order of the listener
	seen map[xds.Ref]bool // the elements of refs
}

// referencesOf returns the resources that a listener requests over ADS.
func referencesOf(l *listenerv3.Listener) []xds.Ref {
	n := newReferences()
	for _, chain := range append(l.FilterChains[:len(l.FilterChains):len(l.FilterChains)], l.DefaultFilterChain) {
		n.addChain(chain)
	}
	return n.refs
}

func newReferences() *references { return &references{seen: map[xds.Ref]bool{}} }

// addChain adds the references of a filter chain, which may be nil.
func (n *references) addChain(chain *listenerv3.FilterChain) {
	for _, f := range chain.GetFilters() {
		n.add(xds.Extension, f.GetName(), f.GetConfigDiscovery().GetConfigSource())
		if f.GetTypedConfig().MessageIs((*hcmv3.HttpConnectionManager)(nil)) {
			n.addManager(f.GetTypedConfig().GetValue())
		}
	}
}

// add adds a resource if its name is not empty and its source is ADS.
func (n *references) add(t xds.Type, name string, from *corev3.ConfigSource) {
	if name != "" && from.GetAds() != nil {
		n.addOnce(xds.Ref{Type: t, Name: name})
	}
}

// addOnce adds a resource unless it was added before.
func (n *references) addOnce(ref xds.Ref) {
	if !n.seen[ref] {
		n.seen[ref] = true
		n.refs = append(n.refs, ref)
	}
}

// These are the numbers of the fields by which a connection manager references other resources.
var (
	rdsField       = numberOf(&hcmv3.HttpConnectionManager{}, "rds")
	filtersField   = numberOf(&hcmv3.HttpConnectionManager{}, "http_filters")
	discoveryField = numberOf(&hcmv3.HttpFilter{}, "config_discovery")
)

// numberOf returns the number of a field of a message.
func numberOf(m proto.Message, field protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(field).Number()
}

// addManager adds the references of an encoded connection manager, its routes first. It decodes only the fields with
// references, because an encoded connection manager is long and may contain all routes. It ignores the bytes after a
// decoding error.
func (n *references) addManager(encoded []byte) {
	var filters [][]byte
	_ = protowalk.Each(encoded, func(f protowalk.Field) error {
		switch {
		case f.Number == filtersField && hasField(f.Bytes, discoveryField):
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

// hasField reports whether an encoded message has a field.
func hasField(encoded []byte, field protowire.Number) (found bool) {
	_ = protowalk.Each(encoded, func(f protowalk.Field) error {
		found = found || f.Number == field
		return nil
	})
	return found
}
