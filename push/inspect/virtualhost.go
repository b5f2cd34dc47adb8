package inspect

import (
	"fmt"
	"reflect"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// VirtualHost decodes one virtual host of a route configuration, and nothing else of it; nil if it does not have the
// virtual host. The error is a piece that does not decode, which is a fault of the builders.
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

// virtualHostIn decodes the fields of a route configuration, and returns its virtual host with a name.
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

// Word returns a value of a Spec in the words of Explain.
func Word(v any) string { return value(reflect.ValueOf(v)) }
