package ingest

import (
	"slices"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// reportNeeded passes the host names to resolve to Config.Named, and the key sets to fetch to Config.KeySets. It calls
// a function only if an argument has changed. The leader emits the results as objects (normal.ResolvedID,
// normal.KeysID).
func (l *Loop) reportNeeded() {
	whole := l.state.sources.configured()
	also := whole != l.whole
	l.whole = whole
	needed := func(source string) ([]object.ID, bool) {
		ids, changed := l.state.inventory.objects.Needed(source)
		if !changed && !also {
			return nil, false
		}
		return slices.SortedFunc(ids, object.ID.Compare), true
	}
	if l.Named != nil {
		if ids, changed := needed(origin.DNS); changed {
			var names []string
			for _, id := range ids {
				names = append(names, id.Name)
			}
			l.callbacks.Call(func() { l.Named(names, whole) })
		}
	}
	if l.KeySets != nil {
		if ids, changed := needed(origin.JWKS); changed {
			l.callbacks.Call(func() { l.KeySets(ids, whole) })
		}
	}
}

// reportReferred calls Config.Referred if the used Secrets and ConfigMaps have changed.
func (l *Loop) reportReferred() {
	references := l.state.inventory.references
	if references.find(l.state.inventory.objects.Mesh().GetRootNamespace()) && l.Referred != nil {
		l.callbacks.Call(func() { l.Referred(slices.Clone(references.found)) })
	}
}
