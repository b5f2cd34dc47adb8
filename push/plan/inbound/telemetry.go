package inbound

import (
	"slices"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/telemetry"
)

// visibility returns the Visibility that decides which clusters the workload's own listeners may use.
func (wl *Workload) visibility() host.Visibility {
	return host.Visibility{Namespace: wl.key.Namespace, Imports: host.ImportsOf(wl.sidecar, wl.key.Namespace), Patches: wl.patches}
}

// report decides the telemetry of the listeners. Services that the proxy sees only as destinations of VirtualServices
// do not count.
func (wl *Workload) report() {
	wl.reports = telemetry.Of(wl.in, telemetry.Proxy{Telemetry: wl.key.Telemetry, Self: wl.key.Self, Caps: wl.key.Caps,
		Visibility: wl.visibility()})
	wl.found = append(wl.found, wl.reports.Problems...)
}

// ReportsOtherwise reports whether a change may affect the telemetry of the listeners: a change of Telemetries of the
// workload's namespace, by the predicate namespace, or of a provider's service, if its host is in hosts.
func (wl *Workload) ReportsOtherwise(namespace func(string) bool, hosts map[string]input.Types) bool {
	return namespace(wl.key.Namespace) || slices.ContainsFunc(wl.reports.Hosts, func(host string) bool { return hosts[host] != 0 })
}
