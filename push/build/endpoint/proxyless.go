package endpoint

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/xds"
)

// Build draws the assignment. Errors are those of encoding.
func (s Proxyless) Build() (*xds.Resource, error) {
	cla := Assignment(s.Spec, isIP)
	for _, group := range cla.Endpoints {
		if group.Locality == nil {
			group.Locality = &corev3.Locality{}
		}
		for _, e := range group.LbEndpoints {
			e.Metadata = nil
		}
	}
	return xds.Encode(xds.Endpoint, s.Cluster, cla)
}

func isIP(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Zone() == ""
}
