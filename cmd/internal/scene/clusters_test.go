package scene

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// clustersOf lists the clusters that a route configuration sends to.
func clustersOf(r *xds.Resource) []string {
	m, err := inspect.Message(r)
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, vh := range m.(*routev3.RouteConfiguration).GetVirtualHosts() {
		for _, route := range vh.GetRoutes() {
			if name := route.GetRoute().GetCluster(); name != "" {
				names = append(names, name)
			}
			for _, w := range route.GetRoute().GetWeightedClusters().GetClusters() {
				names = append(names, w.GetName())
			}
		}
	}
	return names
}
