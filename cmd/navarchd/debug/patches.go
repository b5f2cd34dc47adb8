package debug

import (
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
)

// patches is what each patch of the EnvoyFilters changes, of those that somebody may see.
func (p *Proxies) patches(sees authz.Visible) (all []inspect.Patch) {
	for _, c := range p.Planner.Patches() {
		if sees.Of(c.Patch.Filter.Key.Namespace) {
			all = append(all, inspect.PatchOf(c.Patch, c.Changed))
		}
	}
	return all
}
