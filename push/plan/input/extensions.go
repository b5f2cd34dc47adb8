package input

import (
	"fmt"
	"iter"

	"navarch.io/navarch/push/build/extension"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/store/problem"
)

// AddedExtensions yields the filter configurations (ECDS) that patches add, for both sides of a proxy. If several
// patches add the same name, the first is yielded. For each further patch with the name, and for each patch whose build
// fails, a problem is appended to found. Configurations are built while the caller iterates.
func (in *Input) AddedExtensions(set PatchSet, found *[]Problem) iter.Seq[layer.Unit] {
	return func(yield func(layer.Unit) bool) {
		names := map[string]bool{}
		for _, p := range set {
			if !patch.AddsExtension(p) {
				continue
			}
			u, ok := in.Make(extension.Added{Patch: p}, p.Filter.Key, found)
			switch {
			case !ok:
			case names[u.Res.Name]:
				*found = append(*found, Warning(p.Filter.Key, problem.Duplicate, fmt.Sprintf("spec.configPatches[%d].patch.value.name", p.Index),
					fmt.Sprintf("%q: an earlier patch adds a configuration of this name; this one is left out", u.Res.Name)))
			default:
				if names[u.Res.Name] = true; !yield(u) {
					return
				}
			}
		}
	}
}
