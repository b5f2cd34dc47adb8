// Package inspect answers questions about what a proxy should have and why: resources as JSON, the dumps of /debug.
//
// Owns: nothing.  Reads: plan, view, manifest, delta, mirror.  Never: changes what it looks at; shows key material.
package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

var messages = [xds.NumTypes]func() proto.Message{
	xds.Cluster:   func() proto.Message { return &clusterv3.Cluster{} },
	xds.Endpoint:  func() proto.Message { return &endpointv3.ClusterLoadAssignment{} },
	xds.Listener:  func() proto.Message { return &listenerv3.Listener{} },
	xds.Route:     func() proto.Message { return &routev3.RouteConfiguration{} },
	xds.Secret:    func() proto.Message { return &tlsv3.Secret{} },
	xds.Extension: func() proto.Message { return &corev3.TypedExtensionConfig{} },
}

// plurals are the keys of a rendered set, in the order of xds.Type.
var plurals = [xds.NumTypes]string{"clusters", "endpoints", "listeners", "routes", "secrets", "extensions"}

// Message decodes a resource, without what is confidential: of Secrets it has what is public.
// An error: the bytes are no message of the resource's type, which would be a mistake of the builders.
func Message(r *xds.Resource) (proto.Message, error) {
	m := messages[r.Type]()
	if err := proto.Unmarshal(r.Body(), m); err != nil {
		return nil, fmt.Errorf("decode %v %s: %w", r.Type, r.Name, err)
	}
	switch {
	case r.Type == xds.Secret:
		return public(m), nil
	case r.Confidential:
		return withoutCredential(m)
	}
	return m, nil
}

// JSON is a resource as proto JSON with proto field names, as far as Message has it. Errors are those of Message, and of printing.
func JSON(r *xds.Resource) (json.RawMessage, error) {
	m, err := Message(r)
	if err != nil {
		return nil, err
	}
	raw, err := printed(m)
	if err != nil {
		return nil, fmt.Errorf("print %v %s: %w", r.Type, r.Name, err)
	}
	return raw, nil
}

// Rendered is a set as `navarchctl render` prints it: every type, each sorted by name.
type Rendered [xds.NumTypes][]json.RawMessage

// Resources are what a proxy has or should have, by type; each sorted by name.
type Resources [xds.NumTypes][]*xds.Resource

// Of is everything in a set.
func Of(set *manifest.Set) Resources {
	var all Resources
	for t := range xds.NumTypes {
		all[t] = set.Types[t].Sorted()
	}
	return all
}

// Render decodes the types that are wanted; none means all. An error names the resource that cannot be printed.
func Render(all Resources, wanted ...xds.Type) (Rendered, error) {
	var out Rendered
	for t := range xds.NumTypes {
		out[t] = []json.RawMessage{}
		if len(wanted) > 0 && !slices.Contains(wanted, t) {
			continue
		}
		for _, r := range all[t] {
			raw, err := JSON(r)
			if err != nil {
				return out, err
			}
			out[t] = append(out[t], raw)
		}
	}
	return out, nil
}

// MarshalJSON is {"clusters": [...], "endpoints": [...], "listeners": [...], "routes": [...], "secrets": [...],
// "extensions": [...]}. The error is that of a resource which has no JSON form.
func (r Rendered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for t, list := range r {
		if t > 0 {
			b.WriteByte(',')
		}
		raw, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", plurals[t], raw)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
