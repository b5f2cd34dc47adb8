package plan

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
)

// Fresh plans a view from nothing, at a resolved snapshot, without the Secrets that its proxies subscribe to.
func Fresh(s *mirror.Snapshot, v view.View) *manifest.Set {
	return fresh(input.New(s, &pool.Pool{}), v, secret.Copy{})
}

// fresh plans a view from nothing, with the Secrets that are subscribed to.
func fresh(in *input.Input, v view.View, subscribed secret.Copy) *manifest.Set {
	p := &Planner{input: in, scopes: map[view.Scope]*scope{}, workloads: map[view.Workload]*workload{}, index: hostIndex{},
		secrets: secret.New(in), identities: map[view.Identity]*identity{}, revision: in.Revision()}
	set := *p.plan(v).set.Load()
	if v.Secrets != (view.Identity{}) {
		set.Types[xds.Secret][manifest.Overlay] = subscribed.Fresh(in)
	}
	return &set
}

// freshFor is fresh for a node.
func freshFor(in *input.Input, n view.Node, subscribed secret.Copy) *manifest.Set {
	return fresh(in, viewFrom(in, n), subscribed)
}

// Check plans a joined proxy's view from nothing and compares. It returns what differs, by type and name; nothing is
// right.
func (p *Planner) Check(h *Handle) []string {
	in := input.New(p.input.Snapshot, p.input.Pool)
	return compare(h.Set(), freshFor(in, h.Node, p.secrets.Copy(h.View().Secrets)))
}

func compare(have, want *manifest.Set) (out []string) {
	for t := range xds.NumTypes {
		for _, d := range manifest.Diff(have.Types[t], want.Types[t]) {
			if t == xds.Secret && want.Types[t].Pending(d.Name) {
				continue // it is being opened again, and the last good one stands
			}
			if d.Old == nil || d.New == nil || d.Old.Version != d.New.Version {
				out = append(out, t.Noun()+" "+d.Name)
			}
		}
	}
	return out
}
