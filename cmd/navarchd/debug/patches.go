package debug

import (
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
)

// patches returns the visible patches of EnvoyFilters. Each has the number of resources that it changes.
func (p *Proxies) patches(sees authz.Visible) (all []inspect.Patch) {
	for _, c := range p.Planner.Patches() {
		if sees.Of(c.Patch.Filter.Key.Namespace) {
			all = append(all, inspect.PatchOf(c.Patch, c.Changed))
		}
	}
	return all
}
