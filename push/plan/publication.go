package plan

import (
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Publication describes a finished plan, before the streams of the changed proxies are notified. It is valid only
// during the call of Config.Publishing, and must not be modified.
type Publication struct {
	Path Path // Fast for a plan of endpoints, Slow for a plan of configuration
	// Span contains the revisions of the planned edits. It is empty for a plan that only publishes a newer revision.
	model.Span
	// Edits are the planned edits of records. If both paths plan an edit, it is in a Publication of each path.
	Edits []mirror.Edit
	// Moved lists the proxies whose sets of resources changed, or that got another view. A view groups the proxies with
	// equal configuration. Proxies of one view are adjacent, except for proxies that got another view. After a panic of
	// the plan, Moved lists all proxies, in no order.
	Moved []Moved
}

// Objects returns the keys of the edited records, in the order of the edits. The caller owns the slice.
func (p Publication) Objects() []model.Key {
	keys := make([]model.Key, len(p.Edits))
	for i, e := range p.Edits {
		keys[i] = e.Key()
	}
	return keys
}

// Spans returns the revisions of the edits of each namespace. A namespace is missing if the revisions of one of its
// edits are unknown. The caller owns the map.
func (p Publication) Spans() map[string]model.Span {
	all, unknown := map[string]model.Span{}, map[string]bool{}
	for _, e := range p.Edits {
		namespace := e.Key().Namespace
		if e.In == nil {
			unknown[namespace] = true
		} else {
			all[namespace] = all[namespace].Join(*e.In)
		}
	}
	for namespace := range unknown {
		delete(all, namespace)
	}
	return all
}

// Views returns the number of views (groups of proxies with equal configuration) in Moved, by namespace. The map is
// never nil, and the caller owns it. Views must be called during Config.Publishing.
func (p Publication) Views() map[string]int {
	counts := map[string]int{}
	var last *planned
	seen := map[*planned]bool{}
	for _, m := range p.Moved {
		of := m.Handle.planned.Load()
		if of != last && !seen[of] { // most proxies follow a proxy of the same view
			counts[m.Handle.Node.Namespace]++
			seen[of] = true
		}
		last = of
	}
	return counts
}

// publishing calls Config.Publishing.
func (l *Loop) publishing(path Path, of model.Span, edits []mirror.Edit, moved []Moved) {
	if l.cfg.Publishing != nil {
		l.watchPlanned.Call(func() {
			l.cfg.Publishing(Publication{Path: path, Span: of, Edits: edits, Moved: moved})
		})
	}
}

// spanOf returns the span of a change.
func spanOf(c mirror.Change) model.Span {
	return model.Span{First: c.New.Revision(), Last: c.New.Revision(), Since: c.Committed}
}
