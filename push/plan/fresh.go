package plan

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
)

// Fresh plans a view from nothing, at a resolved snapshot, without the Secrets that its proxies ask for.
func Fresh(s *mirror.Snapshot, v view.View) *manifest.Set {
	return fresh(newInput(s, &pool.Pool{}), v, secretSubscriptions{})
}

// fresh plans a view from nothing, with the Secrets that are asked for.
func fresh(w *input, v view.View, ws secretSubscriptions) *manifest.Set {
	p := &Planner{input: w, scopes: map[view.Scope]*scope{}, workloads: map[view.Workload]*workload{}, seen: seen{}, revision: w.Revision()}
	set := *p.plan(v).set.Load()
	if v.Secrets != (view.Identity{}) {
		set.Types[xds.Secret][manifest.Overlay] = ws.fresh(w)
	}
	return &set
}

// Check plans a joined proxy's view from nothing and compares. It returns what differs, by type and name; nothing is
// right.
func (p *Planner) Check(h *Handle) []string {
	w := newInput(p.input.Snapshot, p.input.pool)
	return compare(h.Set(), fresh(w, view.Of(w.Snapshot, h.Node), p.secretSubscriptionsOf(h.View().Secrets)))
}

func compare(have, want *manifest.Set) (out []string) {
	for t := range xds.NumTypes {
		for _, d := range manifest.Diff(have.Types[t], want.Types[t]) {
			if t == xds.Secret && want.Types[t].Pending(d.Name) {
				continue // it is being opened anew, and the last good one stands
			}
			if d.Old == nil || d.New == nil || d.Old.Version != d.New.Version {
				out = append(out, t.Noun()+" "+d.Name)
			}
		}
	}
	return out
}
