package host

import (
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Removals calls f with the clusters that patches remove as a whole, which are not planned. It takes time for each host, where there is such a patch.
func (t *Table) Removals(f func(input.Removal)) {
	removing := t.patches.Removing()
	if len(removing) == 0 {
		return
	}
	removed := func(name string) {
		removing.Removals(xds.Ref{Type: xds.Cluster, Name: name}, func(p model.Patch) bool { return input.RemovesCluster(p, t.Side(), name) }, f)
	}
	for name, h := range t.hosts.All() {
		if h.Service == nil {
			continue
		}
		for port := range h.Ports() {
			if n := port.GetNumber(); t.hasPort(h, n) {
				removed(xds.OutboundCluster(n, "", name))
				for _, sub := range h.Rules.subsets {
					removed(xds.OutboundCluster(n, sub.GetName(), name))
				}
			}
		}
	}
}
