package endpoint

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/xds"
)

// Build encodes the assignment. The error is one of xds.Encode.
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

// isIP reports whether an address is an IP without a zone.
func isIP(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Zone() == ""
}
