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

// Edge contains the records and settings, besides Gateways, that decide the listeners of a router (a gateway's Envoy).
// The planners of routers' listeners (push/plan/front) read it. An Edge is immutable. Its embedded Workload has no
// resources.
type Edge struct {
	*Workload
	Services        []*model.Service                 // the services that have the router as an endpoint, the oldest first
	Policies        intern.List[*model.Policy]       // the AuthorizationPolicies that apply
	Authentications intern.List[*model.Policy]       // the RequestAuthentications that apply
	Authorizers     intern.List[extauthz.Authorizer] // the providers of external authorization that policies name
	Extensions      intern.List[extension.Filter]    // filters of WasmPlugins and TrafficExtensions
	Reports         telemetry.Reports                // the telemetry of the listeners
	numbers         map[*model.ServicePort]uint32    // service port -> its first target port at the router's Pod
}

// NewEdge returns the edge of a router. It reads the records that the key names, and skips missing records. The
// parameter patches has the patches for the router's outbound side. The method Problems returns the problems with
// providers of external authorization. Problems with telemetry are in Reports.
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

// report returns the telemetry of the router's listeners. A router reports as the client of the services behind it.
func (e *Edge) report(in *input.Input) telemetry.Reports {
	return telemetry.Of(in, telemetry.Proxy{Client: true, Telemetry: e.key.Telemetry, Self: e.key.Self, Caps: e.key.Caps,
		Visibility: host.Visibility{Namespace: e.key.Namespace, Imports: []*host.Imports{host.ImportAll()}, Patches: e.patches}})
}

// Again returns a copy of the edge whose Reports are computed from another input. It does not change e.
func (e *Edge) Again(in *input.Input) *Edge {
	next := *e
	next.Reports = e.report(in)
	return &next
}

// Target returns the number of a service port at the router's Pod. The parameter p is a port of an element of Services.
// If endpoints of the Pod state several numbers for the port, Target returns the first. The result is 0 for any other
// port, and if the target port is a name that no endpoint defines. The first argument is ignored.
func (e *Edge) Target(_ *model.Service, p *model.ServicePort) uint32 { return e.numbers[p] }
