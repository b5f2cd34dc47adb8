package endpoint

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"navarch.io/navarch/push/xds"
)

// Build encodes the assignment as Spec.Build does, with a Locality in each group and without metadata. Members whose
// address is not an IP, or is an IP with a zone, are left out. Build fails only if a text is not valid UTF-8.
func (s Proxyless) Build() (*xds.Resource, error) { return s.BuildInPieces(func() {}) }

// BuildInPieces does the same as Build, and calls the function pause after about every 2,000 steps. Each endpoint takes
// several steps. The function pause may block, and must not be nil. Errors are those of Build.
func (s Proxyless) BuildInPieces(pause func()) (*xds.Resource, error) {
	return built(s, pause)
}

// message returns the assignment that is sent.
func (s Proxyless) message(pace *pacer) *endpointv3.ClusterLoadAssignment {
	cla := assignment(s.Spec, isIP, lbEndpoint, pace)
	for _, group := range cla.Endpoints {
		if group.Locality == nil {
			group.Locality = &corev3.Locality{}
		}
		for _, e := range group.LbEndpoints {
			e.Metadata = nil
			pace.step()
		}
	}
	return cla
}

// isIP reports whether an address is an IP without a zone.
func isIP(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Zone() == ""
}
