package sidecar

import (
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// scope contains the inputs and the hosts of a scope, and the state that the Front and its tables share. A scope is a
// group of proxies with the same outbound configuration (view.Scope).
type scope struct {
	in       *input.Input
	layer    *layer.Layer
	key      view.Scope
	hosts    *host.Table
	sidecar  *model.Sidecar // nil if no Sidecar applies
	egress   []*egress
	patches  input.PatchSet
	problems input.Problems
	reports  reports
	ports    map[servedBy][]uint32 // cache of portsOf, until the step (the planning of one change) is done
	// own marks the listeners that only this scope uses. All other listeners are shared with forks, and are copied
	// before the first change.
	own *editor
}

// editor identifies the scope that may change a listener in place.
type editor struct{ _ byte }

// fork returns a copy of the scope with another key and another layer. The copy and the original share all present
// listeners, so neither may change them in place.
func (s *scope) fork(key view.Scope, to *layer.Layer) *scope {
	s.own = &editor{}
	next := *s
	if next.egress = nil; key != s.key {
		next.egress, _ = egressOf(s.sidecar, key)
	} else {
		for _, e := range s.egress {
			same := *e
			same.Imports = e.Imports.Fork()
			next.egress = append(next.egress, &same)
		}
	}
	next.key, next.layer, next.hosts = key, to, s.hosts.Fork(key, importsOf(next.egress), to)
	next.own, next.problems, next.reports, next.ports = &editor{}, s.problems.Clone(), s.reports.clone(), map[servedBy][]uint32{}
	return &next
}

// outbound returns the envoy.Outbound of the scope, which plans the resources that do not depend on hosts.
func (s *scope) outbound() envoy.Outbound {
	return envoy.Outbound{In: s.in, Layer: s.layer, Key: s.key, Side: side, Patches: s.patches, Sidecar: s.sidecar}
}

// CatchAll implements routes.Names. It returns the virtual host for all names that no other virtual host has. Patches
// are not applied. The result is false if the route configuration needs no such virtual host.
func (s *scope) CatchAll(c routes.Config) (vhost.CatchAll, bool) { return s.outbound().CatchAll(c) }

// routesScope returns the common inputs of the scope's route configurations.
func (s *scope) routesScope() routes.Scope {
	return routes.Scope{In: s.in, Layer: s.layer, Hosts: s.hosts, Patches: s.patches, Problems: s.problems,
		Caps: s.anonymous(), Proxy: s.key.Routes}
}

// anonymous returns the capabilities that listeners and virtual hosts depend on.
func (s *scope) anonymous() xds.Caps { return envoy.VirtualHostCaps(s.key) }
