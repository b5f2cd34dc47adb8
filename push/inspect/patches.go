package inspect

import (
	"net/http"

	"navarch.io/navarch/store/model"
)

// Patch is one line of /debug/patches: a patch of an EnvoyFilter.
type Patch struct {
	Object    string `json:"object"`
	Index     int    `json:"index"` // in spec.configPatches
	ApplyTo   string `json:"applyTo"`
	Operation string `json:"operation"`
	// Changed is the number of resources that the patch changes or removes for the proxies of this replica. Each
	// cluster, listener, head of a route configuration, virtual host and configuration of a filter counts once, however
	// many proxies have it. nil: an older build does not count patches of this type.
	Changed *int `json:"changed"`
}

// PatchOf returns the line of a patch. changed is the number of resources that the patch changes or removes. The field
// Changed of the result is not nil.
func PatchOf(p model.Patch, changed int) Patch {
	of := p.Config()
	return Patch{Object: p.Filter.Key.String(), Index: p.Index, ApplyTo: of.GetApplyTo().String(),
		Operation: of.GetPatch().GetOperation().String(), Changed: &changed}
}

// patches serves /debug/patches; the list is empty for a process that serves no proxies.
func patches(c Config, _ *http.Request) (any, error) {
	if c.Patches == nil {
		return []Patch{}, nil
	}
	return append([]Patch{}, c.Patches()...), nil
}
