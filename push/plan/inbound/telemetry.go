package inbound

import (
	"slices"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/telemetry"
)

// visibility is what decides to which clusters the workload's own listeners may send.
func (wl *Workload) visibility() host.Visibility {
	return host.Visibility{Namespace: wl.key.Namespace, Imports: host.ImportsOf(wl.sidecar, wl.key.Namespace), Patches: wl.patches}
}

// report decides what the listeners report. Services that the proxy sees because a VirtualService sends there do not count.
func (wl *Workload) report() {
	wl.reports = telemetry.Of(wl.in, telemetry.Proxy{Telemetry: wl.key.Telemetry, Self: wl.key.Self, Caps: wl.key.Caps,
		Visibility: wl.visibility()})
	wl.found = append(wl.found, wl.reports.Problems...)
}

// ReportsOtherwise says whether a change may reach what the listeners report: the Telemetries of a namespace, or services of providers.
func (wl *Workload) ReportsOtherwise(namespace func(string) bool, hosts map[string]input.Types) bool {
	return namespace(wl.key.Namespace) || slices.ContainsFunc(wl.reports.Hosts, func(host string) bool { return hosts[host] != 0 })
}
