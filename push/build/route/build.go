package route

import (
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// maxDirectResponse is the largest body of a direct response, in bytes; package vhost leaves out what is larger.
const maxDirectResponse = 1 << 20

// Build is the route configuration as a rope: the head, and the virtual hosts as they are. Envoy reads the fields of a
// message in any order. An error: a value breaks a rule of Envoy's protos.
func (s Spec) Build() (*xds.Resource, error) {
	head, _ := s.head()
	if err := head.ValidateAll(); err != nil {
		return nil, fmt.Errorf("route configuration %s: %w", s.Name, err)
	}
	return xds.EncodeRope(xds.Route, s.Name, head, s.Hosts.All())
}

// head is all but the virtual hosts, and the patches that it is drawn without.
func (s Spec) head() (*routev3.RouteConfiguration, []error) {
	return patch.ApplyRouteConfig(&routev3.RouteConfiguration{
		Name:                           s.Name,
		ValidateClusters:               wrapperspb.Bool(false), // RDS comes after CDS, and an unknown cluster answers 503
		MaxDirectResponseBodySizeBytes: wrapperspb.UInt32(maxDirectResponse),
		IgnorePortInHostMatching:       !s.WithPorts,
	}, s.Patches.All())
}

// Patched says whether there are patches for the head.
func (s Spec) Patched() bool { return s.Patches.Len() > 0 }

// Problems are the patches that the head is drawn without.
func (s Spec) Problems() []error {
	_, problems := s.head()
	return problems
}

// Effective is the patches that change the head.
func (s Spec) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(some intern.List[model.Patch]) (string, error) {
		s.Patches = some
		return patch.VersionOf(s.Build())
	})
}
