package ingest

import (
	"slices"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// reportNeeded reports which names are to be resolved and which keys are to be fetched, where that has changed: records
// refer to these, and the leader emits its findings as objects (normal.ResolvedID, normal.KeysID).
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

// reportReferred reports which Secrets are used, where that has changed.
func (l *Loop) reportReferred() {
	references := l.state.inventory.references
	if l.Referred != nil && references.find(l.state.inventory.objects.Mesh().GetRootNamespace()) {
		l.callbacks.Call(func() { l.Referred(slices.Clone(references.found)) })
	}
}
