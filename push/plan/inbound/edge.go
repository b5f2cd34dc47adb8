package inbound

import (
	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/telemetry"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Edge has the records that decide a router's listeners beside its Gateways. Fronts of routers read it; it publishes no
// resource. Immutable.
type Edge struct {
	*Workload
	Services        []*model.Service // over the router's Pod, the oldest first
	Policies        intern.List[*model.Policy]
	Authentications intern.List[*model.Policy]
	Authorizers     intern.List[extauthz.Authorizer]
	Extensions      intern.List[extension.Filter]
	Reports         telemetry.Reports
	numbers         map[*model.ServicePort]uint32 // the number at the router's Pod
}

// NewEdge reads the edge of a router. Patches are those of its scope.
func NewEdge(in *input.Input, key view.Edge, patches input.PatchSet) *Edge {
	wl := read(in, key.Workload)
	wl.patches = patches
	e := &Edge{Workload: wl, Services: wl.services, Policies: wl.policies, Authentications: wl.authentications,
		Authorizers: wl.authorizers(), Extensions: wl.filtersOf(extension.Outbound), numbers: map[*model.ServicePort]uint32{}}
	for _, svc := range wl.services {
		for _, p := range svc.Spec.GetPorts() {
			if numbers := wl.targets(svc, svc.Spec.GetHosts()[0], p); len(numbers) > 0 {
				e.numbers[p] = numbers[0]
			}
		}
	}
	e.Reports = e.report(in)
	wl.in = nil
	return e
}

// report decides what the router's listeners report: a gateway is the client of the services behind it.
func (e *Edge) report(in *input.Input) telemetry.Reports {
	return telemetry.Of(in, telemetry.Proxy{Client: true, Telemetry: e.key.Telemetry, Self: e.key.Self, Caps: e.key.Caps,
		Visibility: host.Visibility{Namespace: e.key.Namespace, Imports: []*host.Imports{host.ImportAll()}, Patches: e.patches}})
}

// Again returns the edge with reports that another input decides.
func (e *Edge) Again(in *input.Input) *Edge {
	next := *e
	next.Reports = e.report(in)
	return &next
}

// Target returns the number that a port of a service has at the router's Pod; 0: its endpoints do not say.
func (e *Edge) Target(_ *model.Service, p *model.ServicePort) uint32 { return e.numbers[p] }
