package route

import (
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// maxDirectResponse is the largest body of a direct response, in bytes. Package vhost leaves out rules with a larger
// body.
const maxDirectResponse = 1 << 20

// Build encodes the route configuration as a rope, a resource of several byte slices. The encoded head (all fields
// except virtual hosts) comes first, then Hosts unchanged. Envoy accepts the fields of a message in any order. Patches
// that Envoy would refuse are left out of the head. Build fails if the head violates a constraint of Envoy's API, or if
// one of its strings is not valid UTF-8. The error names the route configuration.
func (s Spec) Build() (*xds.Resource, error) {
	head, _ := s.head(nil)
	if err := head.ValidateAll(); err != nil {
		return nil, fmt.Errorf("route configuration %s: %w", s.Name, err)
	}
	return xds.EncodeRope(xds.Route, s.Name, head, s.Hosts.All())
}

// head returns the patched route configuration without its virtual hosts, and the errors that Problems returns. The
// Trace t, which may be nil, records the patches that change the route configuration.
func (s Spec) head(t *patch.Trace) (*routev3.RouteConfiguration, []error) {
	return t.ApplyRouteConfig(&routev3.RouteConfiguration{
		Name:                           s.Name,
		ValidateClusters:               wrapperspb.Bool(false), // clusters are sent before routes, and a request to an unknown cluster gets 503
		MaxDirectResponseBodySizeBytes: wrapperspb.UInt32(maxDirectResponse),
		IgnorePortInHostMatching:       !s.WithPorts,
	}, s.Patches.All())
}

// Patched reports whether the Spec has patches. These patches may have no effect.
func (s Spec) Patched() bool { return s.Patches.Len() > 0 }

// Problems returns an error for each patch that Build leaves out (patch.Left), and for each patch that states a
// different name (a model.Problem). Build keeps the original name. The result is nil without such patches.
func (s Spec) Problems() []error {
	_, problems := s.head(nil)
	return problems
}

// Effective returns the patches that change the built configuration, in order of application; nil without such patches.
// All other patches have no effect or are left out.
func (s Spec) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) { s.head(t) })
}
