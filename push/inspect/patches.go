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
	// Changed is the number of resources that the patch changes or removes for the proxies of this replica. A resource
	// counts once, however many proxies have it. The resources are clusters, listeners, route configurations without
	// their virtual hosts, virtual hosts, and configurations of filters. Changed is nil if an older build made the line
	// and does not count patches of this type.
	Changed *int `json:"changed"`
}

// PatchOf returns the line of a patch. changed is the number for the field Changed, which is never nil in the result.
func PatchOf(p model.Patch, changed int) Patch {
	of := p.Config()
	return Patch{Object: p.Filter.Key.String(), Index: p.Index, ApplyTo: of.GetApplyTo().String(),
		Operation: of.GetPatch().GetOperation().String(), Changed: &changed}
}

// patches serves /debug/patches. The list is empty for a process that serves no proxies.
func patches(c Config, _ *http.Request) (any, error) {
	if c.Patches == nil {
		return []Patch{}, nil
	}
	return append([]Patch{}, c.Patches()...), nil
}
