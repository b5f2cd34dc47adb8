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
	// Changed is the number of resources that the patch changes for the proxies of this replica. It counts clusters,
	// listeners, heads of route configurations, virtual hosts and configurations of filters, each once, however many
	// proxies have it. It includes the clusters and listeners that the patch removes. It is nil if an older build does not
	// count this kind of patch.
	Changed *int `json:"changed"`
}

// PatchOf returns the line of a patch that changes so many resources.
func PatchOf(p model.Patch, changed int) Patch {
	of := p.Config()
	return Patch{Object: p.Filter.Key.String(), Index: p.Index, ApplyTo: of.GetApplyTo().String(),
		Operation: of.GetPatch().GetOperation().String(), Changed: &changed}
}

// patches serves /debug/patches.
func patches(c Config, _ *http.Request) (any, error) {
	if c.Patches == nil {
		return []Patch{}, nil
	}
	return append([]Patch{}, c.Patches()...), nil
}
