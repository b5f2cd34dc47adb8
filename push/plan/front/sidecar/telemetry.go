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

// reports contains the telemetry (logs, metrics and spans) that the listeners of a scope (a group of proxies) report.
type reports struct {
	spec build.Spec // for proxies without inputs, which no Telemetry selects and which send no spans

	// varied contains the telemetry for all other proxies, by their inputs.
	varied map[view.Inputs]telemetry.Reports
	hosts  map[string]bool // hosts of providers; a change of their services makes reports stale
	stale  bool            // reports have to be decided again in this step
	again  bool            // reports were decided again in this step
}

// clone returns a copy for a fork of the scope.
func (r reports) clone() reports {
	r.varied, r.hosts = maps.Clone(r.varied), maps.Clone(r.hosts)
	return r
}

// decide decides the telemetry of listeners for proxies with the given inputs.
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

// reportsOf returns the telemetry of listeners for proxies with the given inputs. It decides the telemetry at the first
// call, and returns the stored decision later.
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

// Vary implements front.Front. It decides and stores the telemetry for proxies with these inputs, unless it is stored
// already.
func (f *Front) Vary(inputs view.Inputs) { f.reportsOf(inputs) }

// Forget implements front.Front. It drops the stored telemetry for proxies with these inputs, if any.
func (f *Front) Forget(inputs view.Inputs) { delete(f.reports.varied, inputs) }

// TelemetryChanged implements front.Front. The next Finish decides the telemetry of listeners again.
func (f *Front) TelemetryChanged() { f.reports.stale = true }

// report decides the telemetry of listeners again. If it differs, all listeners are planned again.
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
		f.listeners.get(name) // copies a shared listener
		f.listeners.changed[name] = true
	}
	var found []input.Problem // dropped: New has reported the same problems
	f.listeners.planVirtual(&found)
}
