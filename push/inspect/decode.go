// Package inspect shows the planned configuration of proxies, and its inputs. It encodes xDS resources as JSON, and
// serves the pages below /debug.
//
// Owns: nothing.
// Reads: the state of the packages plan, view, manifest, delta and mirror.
// Never: changes the inspected state; shows key material.
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

// messages has, for each type, a constructor of the type's message.
var messages = [xds.NumTypes]func() proto.Message{
	xds.Cluster:   func() proto.Message { return &clusterv3.Cluster{} },
	xds.Endpoint:  func() proto.Message { return &endpointv3.ClusterLoadAssignment{} },
	xds.Listener:  func() proto.Message { return &listenerv3.Listener{} },
	xds.Route:     func() proto.Message { return &routev3.RouteConfiguration{} },
	xds.Secret:    func() proto.Message { return &tlsv3.Secret{} },
	xds.Extension: func() proto.Message { return &corev3.TypedExtensionConfig{} },
}

// plurals are the keys of the JSON object for Rendered, in the order of xds.Type.
var plurals = [xds.NumTypes]string{"clusters", "endpoints", "listeners", "routes", "secrets", "extensions"}

// Message decodes a resource without its confidential parts. The result for a Secret has only the public parts. Message
// fails if the body does not decode as the resource's type, which is a fault of the builders. It also fails for a
// confidential resource from which it cannot remove the credential. r.Type must not be xds.Unknown. The caller owns the
// result.
func Message(r *xds.Resource) (proto.Message, error) {
	m := messages[r.Type]()
	if err := proto.Unmarshal(r.Body(), m); err != nil {
		return nil, fmt.Errorf("decode %v %s: %w", r.Type, r.Name, err)
	}
	switch {
	case r.Type == xds.Secret:
		return publicSecret(m), nil
	case r.Confidential:
		return withoutCredential(m)
	}
	return m, nil
}

// JSON returns the result of Message as JSON with protobuf's field names and without white space. It fails if Message
// fails, or if the message cannot be encoded as JSON.
func JSON(r *xds.Resource) (json.RawMessage, error) {
	m, err := Message(r)
	if err != nil {
		return nil, err
	}
	raw, err := protoJSON(m)
	if err != nil {
		return nil, fmt.Errorf("print %v %s: %w", r.Type, r.Name, err)
	}
	return raw, nil
}

// Rendered holds the JSON of resources by type, in the form that `navarchctl render` prints.
type Rendered [xds.NumTypes][]json.RawMessage

// Resources holds resources by type, sorted by name within a type.
type Resources [xds.NumTypes][]*xds.Resource

// Of returns all resources of a set, sorted by name within each type. The resources are shared and read-only.
func Of(set *manifest.Set) Resources {
	var all Resources
	for t := range xds.NumTypes {
		all[t] = set.Types[t].Sorted()
	}
	return all
}

// Render encodes the resources of the wanted types as JSON. Without wanted types it encodes all types. The result has
// empty lists for types that are not wanted. The error is the error of JSON for the first resource that fails. After an
// error the result is incomplete.
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

// MarshalJSON returns {"clusters": [...], "endpoints": [...], "listeners": [...], "routes": [...], "secrets": [...],
// "extensions": [...]}. An error of json.Marshal is returned unchanged.
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
