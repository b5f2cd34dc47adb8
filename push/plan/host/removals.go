package host

import (
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Removals calls f for each cluster that a patch of an EnvoyFilter removes as a whole, once for each such patch.
// Removed clusters are not planned. Without such patches Removals returns at once. With them it visits all hosts.
func (t *Table) Removals(f func(input.Removal)) {
	removing := t.patches.Removing()
	if len(removing) == 0 {
		return
	}
	removed := func(name string) {
		ref := xds.Ref{Type: xds.Cluster, Name: name}
		removing.Removals(ref, func(p model.Patch) bool { return input.RemovesCluster(p, t.Side(), name) }, f)
	}
	for name, h := range t.hosts.All() {
		if h.Service == nil {
			continue
		}
		for port, svc := range h.Ports() {
			n := port.GetNumber()
			if !t.hasPort(h, n) {
				continue
			}
			for _, sub := range append(h.Subsets(), "") {
				removed(xds.OutboundCluster(n, sub, name))
				if t.PassedBySNI(svc, port) {
					removed(xds.SNICluster(n, sub, name))
				}
			}
		}
	}
}
