package inbound

import (
	"slices"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/telemetry"
)

// visibility returns the Visibility of the workload's proxies. The Visibility decides which clusters the inbound
// listeners may use.
func (wl *Workload) visibility() host.Visibility {
	return host.Visibility{Namespace: wl.key.Namespace, Imports: host.ImportsOf(wl.sidecar, wl.key.Namespace), Patches: wl.patches}
}

// report sets the telemetry of the listeners, and adds its problems. The proxies do not report to services that are
// visible only as destinations of VirtualServices.
func (wl *Workload) report() {
	wl.reports = telemetry.Of(wl.in, telemetry.Proxy{Telemetry: wl.key.Telemetry, Self: wl.key.Self, Caps: wl.key.Caps,
		Visibility: wl.visibility()})
	wl.found = append(wl.found, wl.reports.Problems...)
}

// ReportsOtherwise reports whether a change may affect the telemetry of the listeners. The function namespace reports
// whether the telemetry of a namespace's proxies may have changed. The parameter hosts has the hosts with changed
// services, which may be services of telemetry providers. Hosts with an empty set of types are ignored.
func (wl *Workload) ReportsOtherwise(namespace func(string) bool, hosts map[string]input.Types) bool {
	return namespace(wl.key.Namespace) || slices.ContainsFunc(wl.reports.Hosts, func(host string) bool { return hosts[host] != 0 })
}
