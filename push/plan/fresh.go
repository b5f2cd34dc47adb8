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

// Fresh plans a view from scratch and returns its set of resources. The snapshot must be resolved (push/resolve). The
// parameter cluster is the name of the config cluster. The set has no Secrets that proxies subscribe to, and no name
// table. Fresh is safe for concurrent use.
func Fresh(s *mirror.Snapshot, v view.View, cluster string) *manifest.Set {
	return fresh(input.New(s, &pool.Pool{}, cluster), v, secret.Copy{}, false)
}

// fresh plans a view from scratch with the given subscriptions to Secrets. If named is true, the set contains the
// name table.
func fresh(in *input.Input, v view.View, subscribed secret.Copy, named bool) *manifest.Set {
	p := &Planner{input: in, scopes: map[view.Scope]*scope{}, workloads: map[view.Workload]*workload{}, index: hostIndex{},
		secrets: secret.New(in), identities: map[view.Identity]*identity{}, revision: in.Revision()}
	pl := p.plan(v)
	if named {
		p.addNames(pl)
	}
	set := *pl.set.Load()
	if v.Secrets != (view.Identity{}) {
		set.Types[xds.Secret][manifest.Overlay], set.Types[xds.Extension][manifest.Overlay] = subscribed.Fresh(in, pl.modules)
	}
	return &set
}

// freshFor plans the view of a node from scratch.
func freshFor(in *input.Input, n view.Node, subscribed secret.Copy, named bool) *manifest.Set {
	return fresh(in, viewFrom(in, n), subscribed, named)
}

// Check plans a joined proxy's view from scratch and compares the result with the proxy's set. It returns the types and
// names of the resources that differ, for messages, or nil if the sets are equal. An element is a type and a name, such
// as "cluster NAME", or "name table", or "bootstrap". Secrets and filter configurations whose private data is still
// being decrypted are not compared.
func (p *Planner) Check(h *Handle) []string {
	in := input.New(p.input.Snapshot, p.input.Pool, p.input.Cluster)
	have := h.Set()
	return compare(have, freshFor(in, *h.Node, p.secrets.Copy(h.View().Secrets), have.Names != nil))
}

// compare lists the types and names of the resources that differ between two sets.
func compare(have, want *manifest.Set) (out []string) {
	for t := range xds.NumTypes {
		for _, d := range manifest.Diff(have.Types[t], want.Types[t]) {
			if (t == xds.Secret || t == xds.Extension) && want.Types[t].Pending(d.Name) {
				continue // its private data is being decrypted; the previous version stays in effect
			}
			if d.Old == nil || d.New == nil || d.Old.Version != d.New.Version {
				out = append(out, t.Noun()+" "+d.Name)
			}
		}
	}
	if a, b := have.Names.Get(""), want.Names.Get(""); a != b && (a == nil || b == nil || a.Version != b.Version) {
		out = append(out, "name table")
	}
	if a, b := have.Bootstrap, want.Bootstrap; a != b && (a == nil || b == nil || a.Version != b.Version) {
		out = append(out, "bootstrap")
	}
	return out
}
