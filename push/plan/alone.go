package plan

import (
	"slices"

	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// standsAlone reports whether edits may be planned before the edits that follow within milliseconds: they are of
// VirtualServices, and take requests of no host to a destination to which the host did not lead before. Any other edit
// waits for a moment. The objects of one `kubectl apply` come one after the other, and a route that was planned before
// the service or subset that it leads to would answer 503 meanwhile.
func standsAlone(edits []mirror.Edit, s *mirror.Snapshot) bool {
	return !slices.ContainsFunc(edits, func(e mirror.Edit) bool {
		now, is := e.New.(*model.VirtualService)
		if !is {
			return true
		}
		if was, had := e.Old.(*model.VirtualService); had {
			return !leadsAlike(was, now)
		}
		return slices.ContainsFunc(now.Spec.GetHosts(), func(host string) bool { return served(s, host, now.Key) })
	})
}

// leadsAlike reports whether a version of a VirtualService applies where the older one did, to the same hosts, and
// leads to no further destination.
func leadsAlike(was, now *model.VirtualService) bool {
	if !slices.Equal(was.Spec.GetHosts(), now.Spec.GetHosts()) || !slices.Equal(was.Spec.GetGateways(), now.Spec.GetGateways()) ||
		!slices.Equal(was.Spec.GetExportTo(), now.Spec.GetExportTo()) {
		return false
	}
	led := virtualservice.Refs(was)
	for ref := range virtualservice.Refs(now) {
		if _, is := led[ref]; !is {
			return false
		}
	}
	return true
}

// served reports whether requests for a host may be answered without the VirtualService of a key: by a service, or by
// another VirtualService for the host or a wildcard that covers it.
func served(s *mirror.Snapshot, host string, but model.Key) bool {
	names := append(slices.Collect(model.Wildcards(host)), host)
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry, model.KindVirtualService} {
		for _, name := range names {
			for r := range s.ByHost(kind, name) {
				if r.Meta().Key != but {
					return true
				}
			}
		}
	}
	return false
}
