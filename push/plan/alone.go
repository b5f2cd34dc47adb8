package plan

import (
	"slices"

	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// standsAlone reports whether edits may be planned at once, without waiting some milliseconds for further edits. They
// may if all edits create or change VirtualServices, and no host that is already served gets a new destination. Other
// edits wait, because the objects of one `kubectl apply` arrive one after the other. A route that is planned before its
// destination would answer 503 meanwhile.
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

// leadsAlike compares two versions of a VirtualService. It reports whether both have the same hosts, gateways and
// exports, and the newer version has no additional destination.
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

// served reports whether a service or VirtualService of a snapshot has the host, or a wildcard that covers the host.
// The record whose key is the last argument does not count.
func served(s *mirror.Snapshot, host string, except model.Key) bool {
	names := append(slices.Collect(model.Wildcards(host)), host)
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry, model.KindVirtualService} {
		for _, name := range names {
			for r := range s.ByHost(kind, name) {
				if r.Meta().Key != except {
					return true
				}
			}
		}
	}
	return false
}
