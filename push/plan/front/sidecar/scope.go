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

// scope has what the front and its tables read: the inputs that stay the same for as long as the scope exists, and
// the hosts.
type scope struct {
	in       *input.Input
	layer    *layer.Layer
	key      view.Scope
	hosts    *host.Table
	sidecar  *model.Sidecar // nil: none applies
	egress   []*egress
	patches  input.PatchSet
	problems input.Problems
	reports  reports
	ports    map[servedBy][]uint32 // of the hosts of VirtualServices, until the step is done
	// own marks the listeners that belong to this scope alone. The scope copies the others, which it shares with its
	// forks, before it changes them.
	own *editor
}

// editor is an identity under which listeners may be changed in place.
type editor struct{ _ byte }

// fork returns a copy for another key, whose resources go to another layer. From now on both share what they hold.
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

// outbound is the outbound side without its hosts.
func (s *scope) outbound() envoy.Outbound {
	return envoy.Outbound{In: s.in, Layer: s.layer, Key: s.key, Side: side, Patches: s.patches, Sidecar: s.sidecar}
}

// CatchAll implements routes.Names.
func (s *scope) CatchAll(c routes.Config) (vhost.CatchAll, bool) { return s.outbound().CatchAll(c) }

// routesScope returns the common inputs of the scope's route configurations.
func (s *scope) routesScope() routes.Scope {
	return routes.Scope{In: s.in, Layer: s.layer, Hosts: s.hosts, Patches: s.patches, Problems: s.problems,
		Caps: s.anonymous(), Proxy: s.key.Routes}
}

// anonymous are the capabilities that listeners and virtual hosts depend on.
func (s *scope) anonymous() xds.Caps { return envoy.VirtualHostCaps(s.key) }
