package vhost

import (
	"crypto/sha256"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// The numbers of the fields of Route that outline reads.
const (
	fieldRoute          = 2
	fieldRedirect       = 3
	fieldDirectResponse = 7
	fieldName           = 14
)

// encodedHost is a virtual host whose routes are encoded.
type encodedHost struct {
	head   *routev3.VirtualHost // all fields except the routes
	routes [][]byte             // the encoded fields VirtualHost.routes, each with its tag
}

// split decodes a virtual host except for its routes. It fails if the fragment does not decode.
func split(f *xds.Fragment) (encodedHost, error) {
	fail := func(err error) (encodedHost, error) {
		return encodedHost{}, fmt.Errorf("virtual host %s: %w", f.Name, err)
	}
	_, _, tag := protowire.ConsumeTag(f.Bytes)
	if tag < 0 {
		return fail(protowire.ParseError(tag))
	}
	b, n := protowire.ConsumeBytes(f.Bytes[tag:])
	if n < 0 {
		return fail(protowire.ParseError(n))
	}
	var head []byte
	out := encodedHost{head: &routev3.VirtualHost{}}
	for len(b) > 0 {
		field, _, n := protowire.ConsumeField(b)
		switch {
		case n < 0:
			return fail(protowire.ParseError(n))
		case field == fieldRoutes:
			out.routes = append(out.routes, b[:n:n])
		default:
			head = append(head, b[:n]...)
		}
		b = b[n:]
	}
	if err := proto.Unmarshal(head, out.head); err != nil {
		return fail(err)
	}
	return out, nil
}

// outline returns a Route that has only the name of an encoded route, and an empty action of the same type.
func outline(field []byte) *routev3.Route {
	out := &routev3.Route{}
	b := content(field)
	for len(b) > 0 {
		n, _, length := protowire.ConsumeField(b)
		if length < 0 {
			break
		}
		switch n {
		case fieldName:
			out.Name = string(content(b[:length]))
		case fieldRoute:
			out.Action = &routev3.Route_Route{}
		case fieldRedirect:
			out.Action = &routev3.Route_Redirect{}
		case fieldDirectResponse:
			out.Action = &routev3.Route_DirectResponse{}
		}
		b = b[length:]
	}
	return out
}

// content returns the bytes of a field behind its tag and length.
func content(field []byte) []byte {
	_, _, tag := protowire.ConsumeTag(field)
	b, _ := protowire.ConsumeBytes(field[max(tag, 0):])
	return b
}

// patchEncoded applies patches to a virtual host and encodes the result. If a patch removes the virtual host, the
// fragment has no bytes. Only a route that a patch matches is decoded. The function pause is called after each changed
// or added route. patchEncoded fails if f cannot be decoded, if a string is not valid UTF-8, or if the result violates
// a constraint of Envoy's API.
func patchEncoded(f *xds.Fragment, patches intern.List[model.Patch], pause func()) (*xds.Fragment, error) {
	of, err := split(f)
	if err != nil {
		return nil, err
	}
	head, keeps := patch.HeadOf(of.head, patches.All())
	if head == nil {
		return removed(f.Name), nil
	}
	added := head.Routes
	head.Routes = nil
	if err := head.ValidateAll(); err != nil {
		return nil, fmt.Errorf("virtual host %s: %w", f.Name, err)
	}
	e := routeEncoder{patches: patch.RoutesOf(head, patches.All()), fields: map[*routev3.Route][]byte{}, pause: pause}
	if keeps {
		for _, field := range of.routes {
			if err := e.encoded(field); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range added {
		if err := e.change(r); err != nil {
			return nil, err
		}
	}
	parts, err := e.parts()
	if err != nil {
		return nil, err
	}
	out, err := xds.JoinFragment(f.Name, fieldVirtualHosts, head, fieldRoutes, parts)
	if err == nil {
		out.Parts = f.Parts
	}
	return out, err
}

// removed returns the fragment of a virtual host that a patch removes: it has a name and a hash, and no bytes.
func removed(name string) *xds.Fragment {
	sum := sha256.Sum256([]byte("removed " + name))
	return &xds.Fragment{Name: name, Hash: xds.Hash(sum[:16])}
}

// routeEncoder patches the routes of a virtual host one after another.
type routeEncoder struct {
	patches *patch.RoutePatches
	routes  []*routev3.Route          // outlines (see outline) of the routes added so far, in order
	fields  map[*routev3.Route][]byte // maps an outline to its route, encoded as a field of VirtualHost
	pause   func()
}

// encoded adds an encoded route, and patches it if a patch matches it. It fails if a matched route does not decode.
func (e *routeEncoder) encoded(field []byte) error {
	of := outline(field)
	if !e.patches.Matches(of) {
		e.routes, e.fields[of] = append(e.routes, of), field
		return nil
	}
	r := &routev3.Route{}
	if err := proto.Unmarshal(content(field), r); err != nil {
		return fmt.Errorf("route %s: %w", of.GetName(), err)
	}
	return e.change(r)
}

// change patches a route and adds it, unless a patch removes it. It fails if a string is not valid UTF-8.
func (e *routeEncoder) change(r *routev3.Route) error {
	defer e.pause()
	if r = e.patches.Change(r); r == nil {
		return nil
	}
	part, err := xds.EncodePart(r.GetName(), &routev3.VirtualHost{Routes: []*routev3.Route{r}})
	if err != nil {
		return err
	}
	of := outline(part.Bytes)
	e.routes, e.fields[of] = append(e.routes, of), part.Bytes
	return nil
}

// parts inserts the routes that patches add. It returns all routes in order, encoded. It fails if a string of an added
// route is not valid UTF-8.
func (e *routeEncoder) parts() (parts []*xds.Fragment, err error) {
	for _, r := range e.patches.Add(e.routes, e.pause) {
		part := &xds.Fragment{Bytes: e.fields[r]}
		if part.Bytes == nil {
			if part, err = xds.EncodePart(r.GetName(), &routev3.VirtualHost{Routes: []*routev3.Route{r}}); err != nil {
				return nil, err
			}
		}
		parts = append(parts, part)
	}
	return parts, nil
}
