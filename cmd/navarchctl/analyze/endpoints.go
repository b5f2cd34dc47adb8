package analyze

import (
	"fmt"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// unreadyServices reports Services without a ready endpoint, to which calls are answered 503. The conversion to records
// reports routes to such Services (RouteWithoutEndpoints). unreadyServices leaves out headless Services, and namespaces
// without any EndpointSlice.
func unreadyServices(w *world) {
	ready, unready, known := map[string]bool{}, map[string]int{}, map[string]bool{}
	for r := range each[*model.Endpoints](w, model.KindEndpoints) {
		known[r.Key.Namespace] = known[r.Key.Namespace] || normal.SourceObject(r.Key).Kind == "EndpointSlice"
		for _, host := range r.Spec.GetHosts() {
			for _, e := range r.Spec.GetEndpoints() {
				if e.GetHealth() == model.Health_HEALTH_READY {
					ready[host] = true
				} else {
					unready[host]++
				}
			}
		}
	}
	for svc := range each[*model.Service](w, model.KindService) {
		if svc.Spec.GetResolution() != model.Resolution_RESOLUTION_EDS || svc.Spec.GetAliasFor() != "" || svc.Spec.GetHeadless() ||
			len(svc.Spec.GetHosts()) == 0 || len(svc.Spec.GetSelector()) == 0 && !w.live("EndpointSlice") ||
			w.ofSystem(svc.Key.Namespace) || !known[svc.Key.Namespace] {
			continue
		}
		if host := svc.Spec.GetHosts()[0]; !ready[host] {
			which := "no endpoint"
			if n := unready[host]; n > 0 {
				which = fmt.Sprintf("no ready endpoint (%d that are not ready)", n)
			}
			w.foundRecord(problem.ServiceWithoutEndpoints, svc, "spec.selector", "%q has %s: calls of it are answered 503", host, which)
		}
	}
}
