package inspect

import (
	"fmt"
	"reflect"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// VirtualHost returns one virtual host of a route configuration. It returns nil for a nil r, and if r does not have the
// virtual host. It decodes only the piece that contains the virtual host, or the whole body if r has no pieces. The
// error reports that the bytes do not decode, which is a fault of the builders. The caller owns the result.
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

// pieceNamed returns the piece with a name among those from which a fragment was joined, or nil.
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

// virtualHostIn decodes the fields of a route configuration, and returns its virtual host with a name; nil if there is
// no such virtual host.
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

// Word returns a value of a Spec as text, in the terms that explanations use. v must not be nil.
func Word(v any) string { return value(reflect.ValueOf(v)) }
