package sidecar

import (
	"maps"

	build "navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/telemetry"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// reports is what the listeners of a scope report of their traffic.
type reports struct {
	spec   build.Spec                        // of proxies that no Telemetry selects, and that have no tracer
	varied map[view.Inputs]telemetry.Reports // of others, by the inputs of variations that asked for it, and are still there
	hosts  map[string]bool                   // of providers: it is decided again where a service of one of them is another
	stale  bool                              // it is to be decided again in this step
	again  bool                              // it was
}

func (r reports) clone() reports {
	r.varied, r.hosts = maps.Clone(r.varied), maps.Clone(r.hosts)
	return r
}

// decide decides what listeners report to proxies with these inputs.
func (s *scope) decide(inputs view.Inputs) telemetry.Reports {
	out := telemetry.Of(s.in, telemetry.Proxy{Client: true, Telemetry: inputs.Telemetry, Self: inputs.Self, Caps: s.key.Caps,
		Visibility: host.Visibility{Namespace: s.key.Namespace, Imports: importsOf(s.egress), Patches: s.patches}})
	for _, host := range out.Hosts {
		if s.reports.hosts == nil {
			s.reports.hosts = map[string]bool{}
		}
		s.reports.hosts[host] = true
	}
	return out
}

// reportsOf is what listeners report to proxies with these inputs, as it was decided last.
func (s *scope) reportsOf(inputs view.Inputs) build.Spec {
	if inputs.Telemetry == (model.Key{}) && inputs.Self == (view.Self{}) {
		return s.reports.spec
	}
	out, known := s.reports.varied[inputs]
	if !known {
		out = s.decide(inputs)
		if s.reports.varied == nil {
			s.reports.varied = map[view.Inputs]telemetry.Reports{}
		}
		s.reports.varied[inputs] = out
	}
	return out.Spec
}

// Vary implements front.Front.
func (f *Front) Vary(inputs view.Inputs) { f.reportsOf(inputs) }

// Forget implements front.Front.
func (f *Front) Forget(inputs view.Inputs) { delete(f.reports.varied, inputs) }

// Report implements front.Front.
func (f *Front) Report() { f.reports.stale = true }

// report decides again what the listeners report. Where that is something else, all of them are planned.
func (f *Front) report() {
	f.reports.varied, f.reports.hosts, f.reports.stale, f.reports.again = nil, nil, false, true
	out := f.decide(view.Inputs{})
	f.problems.Set("telemetry", out.Problems)
	if out.Spec == f.reports.spec {
		return
	}
	f.reports.spec = out.Spec
	var names []string
	for name := range f.listeners.table.All() {
		names = append(names, name)
	}
	for _, name := range names {
		f.listeners.get(name) // which may be changed from now on
		f.listeners.changed[name] = true
	}
	var found []input.Problem // as before
	f.listeners.planVirtual(&found)
}
