package inspect

import (
	"fmt"
	"reflect"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// VirtualHost returns the virtual host with the given name from a route configuration. It returns nil if r is nil or
// does not have the virtual host. If r consists of pieces, VirtualHost decodes only the piece with the virtual host.
// Otherwise it decodes the whole body. It fails if the bytes do not decode, which is a bug of the code that made r. The
// caller owns the result.
func VirtualHost(r *xds.Resource, name string) (*routev3.VirtualHost, error) {
	if r == nil {
		return nil, nil
	}
	whole := true
	for f := range r.Pieces() {
		whole = false
		if piece := pieceNamed(f, name); piece != nil {
			return virtualHostIn(piece.Bytes, name)
		}
	}
	if whole {
		return virtualHostIn(r.Body(), name)
	}
	return nil, nil
}

// pieceNamed returns the fragment with the given name among f and its parts, or nil.
func pieceNamed(f *xds.Fragment, name string) *xds.Fragment {
	if f.Name == name {
		return f
	}
	for _, part := range f.Parts {
		if found := pieceNamed(part, name); found != nil {
			return found
		}
	}
	return nil
}

// virtualHostIn decodes an encoded route configuration, or a piece of one, and returns the virtual host with the given
// name. It returns nil if there is no such virtual host.
func virtualHostIn(body []byte, name string) (*routev3.VirtualHost, error) {
	var rc routev3.RouteConfiguration
	if err := proto.Unmarshal(body, &rc); err != nil {
		return nil, fmt.Errorf("decode virtual host %s: %w", name, err)
	}
	for _, vh := range rc.GetVirtualHosts() {
		if vh.GetName() == name {
			return vh, nil
		}
	}
	return nil, nil
}

// Word returns the text that explanations show for v. v is a value of a Spec (the inputs of a resource), and must not
// be nil.
func Word(v any) string { return value(reflect.ValueOf(v)) }
