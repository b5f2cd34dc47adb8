package debug

import (
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
)

// Patches returns the visible patches of EnvoyFilters, with the number of resources that each changes for the proxies
// of this process. The list is empty for a process that serves no proxies, and never nil.
func (p *Pages) Patches(sees authz.Visible) []inspect.Patch {
	if p.Proxies == nil {
		return []inspect.Patch{}
	}
	return append([]inspect.Patch{}, p.Proxies.patches(sees)...)
}

// patches returns the visible patches of EnvoyFilters. Each has the number of resources that it changes.
func (p *Proxies) patches(sees authz.Visible) (all []inspect.Patch) {
	for _, c := range p.Planner.Patches() {
		if sees.Of(c.Patch.Filter.Key.Namespace) {
			all = append(all, inspect.PatchOf(c.Patch, c.Changed))
		}
	}
	return all
}
