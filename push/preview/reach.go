package preview

import (
	"slices"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// meshWide returns the names of the created and changed objects that apply to all proxies of the mesh. These are
// policies, Sidecars, EnvoyFilters, Telemetries and extensions of the root namespace without a selector, and the mesh
// configuration. Services and routes of the root namespace are not included.
func meshWide(c mirror.Change) (all []string) {
	root := c.New.Mesh().Spec.GetRootNamespace()
	for _, e := range c.Edits {
		key := e.Key()
		switch {
		case key.Kind == model.KindMesh:
			all = append(all, "MeshConfig")
		case key.Namespace == root && e.New != nil && appliesToAll(e.New):
			all = append(all, nameOf(key))
		}
	}
	return slices.Compact(all)
}

// appliesToAll reports whether a record of the root namespace applies to all proxies of the mesh. It returns false for
// records with a selector or targets, and for kinds that apply to their namespace or to proxies that import them.
func appliesToAll(r model.Record) bool {
	switch t := r.(type) {
	case *model.Policy:
		return t.Spec.GetMeshWide() && len(t.Spec.GetSelector()) == 0
	case *model.Sidecar:
		return len(t.Spec.GetWorkloadSelector().GetLabels()) == 0
	case *model.EnvoyFilter, *model.TrafficExtension:
		return access.SelectsAll(access.Selectors(r))
	case *model.Telemetry:
		return len(t.Spec.GetSelector().GetMatchLabels())+len(t.Spec.GetTargetRefs()) == 0
	}
	return false
}
