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
	// Changed is how many resources of the proxies of this replica the patch changes: clusters, listeners, heads of route configurations, virtual hosts and
	// configurations of filters, each once, however many proxies have it, and the names of clusters and listeners that it removes as a whole. nil: a build
	// of before does not count these.
	Changed *int `json:"changed"`
}

// PatchOf is the line of a patch.
func PatchOf(p model.Patch, changed int) Patch {
	of := p.Config()
	return Patch{Object: p.Filter.Key.String(), Index: p.Index, ApplyTo: of.GetApplyTo().String(), Operation: of.GetPatch().GetOperation().String(), Changed: &changed}
}

func patches(c Config, _ *http.Request) (any, error) {
	if c.Patches == nil {
		return []Patch{}, nil
	}
	return append([]Patch{}, c.Patches()...), nil
}
