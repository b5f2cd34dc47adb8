package preview

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Sees reports whether the caller may see a namespace. A nil Sees permits all namespaces.
type Sees func(namespace string) bool

// of reports whether the caller may see a namespace.
func (s Sees) of(namespace string) bool { return s == nil || s(namespace) }

// Of is the method Scope.Of for all proxies of the mesh, with the same errors.
func Of(ctx context.Context, base *plan.Base, c mirror.Change, sees Sees) (*Plan, error) {
	return Scope{}.Of(ctx, base, c, sees)
}

// Of applies a change to base, a copy of the plan, and returns the differences for visible proxies. A proxy is visible
// if sees permits its namespace, and the scope has the proxy. c.Old must be the snapshot that base.Resolver.Source
// returns. Of changes base, which must not be used again. It leaves Plan.Objects empty. Of fails if ctx ends, or if
// resolving or planning panics. After an error the Plan is nil or incomplete.
func (s Scope) Of(ctx context.Context, base *plan.Base, c mirror.Change, sees Sees) (*Plan, error) {
	found, err := problemsOf(ctx, base, sees)
	if err != nil {
		return nil, err
	}
	before := base.Planner.Handles()
	maps.DeleteFunc(before, func(h *plan.Handle, _ *manifest.Set) bool { return !sees.of(h.Node.Namespace) || !s.has(h.Node) })
	p := &Plan{Revision: c.Old.Revision(), Proxies: len(before), AllViews: plan.Views(maps.Keys(before))}
	moved, err := base.Apply(ctx, c)
	if err != nil {
		return nil, err
	}
	p.Views = viewsOf(moved, before)
	if err := base.Subscribe(subscriptions(p.Views)); err != nil {
		return nil, err
	}
	later, err := problemsOf(ctx, base, sees)
	if err != nil {
		return nil, err
	}
	p.Problems = found.to(later)
	p.assess(ctx, base, c, sees, plan.Views(maps.Keys(before)), s == Scope{})
	return p, ctx.Err()
}

// outcome identifies the proxies of one View.
type outcome struct {
	namespace string
	kind      view.Kind
	was, is   [xds.NumTypes]manifest.Stack
	names     [2]*manifest.Manifest
	bootstrap [2]*xds.Resource
}

// moves identifies proxies that have one outcome, because they share their sets. Proxies with different sets may have
// the same outcome.
type moves struct {
	namespace string
	kind      view.Kind
	was, is   *manifest.Set
}

// viewsOf groups the visible proxies whose configuration changed. For each group it lists the resources that differ.
func viewsOf(moved []plan.Moved, before map[*plan.Handle]*manifest.Set) []View {
	groups, known := map[outcome]*View{}, map[moves]*View{}
	for _, m := range moved {
		was, is, n := before[m.Handle], m.Handle.Set(), m.Handle.Node
		if was == nil { // the caller may not see the proxy
			continue
		}
		move := moves{n.Namespace, n.Kind, was, is}
		v := known[move]
		if v == nil {
			key := outcome{namespace: n.Namespace, kind: n.Kind, was: was.Types, is: is.Types,
				names: [2]*manifest.Manifest{was.Names, is.Names}, bootstrap: [2]*xds.Resource{was.Bootstrap, is.Bootstrap}}
			if v = groups[key]; v == nil {
				v = &View{Namespace: n.Namespace, Kind: kindOf(n.Kind), Before: was, After: is, after: m.Handle,
					identities: map[identity]*plan.Handle{}}
				groups[key] = v
			}
			known[move] = v
		}
		v.add(m.Handle)
	}
	diff := comparison{}
	views := make([]View, 0, len(groups))
	for _, v := range groups {
		if diff.fill(v); len(v.Changed)+len(v.Agent) > 0 {
			slices.Sort(v.Proxies)
			v.Label = v.Namespace + "/" + v.Kind + ", such as " + v.example
			views = append(views, *v)
		}
	}
	slices.SortFunc(views, func(a, b View) int {
		return cmp.Or(cmp.Compare(len(b.Proxies), len(a.Proxies)), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Bytes, b.Bytes))
	})
	return views
}

// kindOf returns the name of a kind of proxies.
func kindOf(k view.Kind) string {
	return [...]string{view.Sidecar: "sidecar", view.Router: "router", view.Proxyless: "grpc"}[k]
}

// add adds a proxy.
func (v *View) add(h *plan.Handle) {
	n := h.Node
	v.identities[identity{n.Verified, h.View().Secrets}] = h
	if len(v.Proxies) == 0 || n.Name < v.example {
		v.example = n.Name
	}
	v.Proxies = append(v.Proxies, n.ID)
}

// comparison caches the differences of manifests (sets of resources), because many views share a manifest.
type comparison map[[2]*manifest.Manifest][]manifest.Delta

// layer returns the differences of two manifests. The result is shared and read-only.
func (c comparison) layer(old, now *manifest.Manifest) []manifest.Delta {
	key := [2]*manifest.Manifest{old, now}
	deltas, known := c[key]
	if !known {
		deltas = manifest.DiffLayer(old, now)
		c[key] = deltas
	}
	return deltas
}

// fill sets the fields Changed, Agent and Bytes of a view. A resource that is pending after the change is left out,
// because streams neither send nor remove it.
func (c comparison) fill(v *View) {
	for t := range xds.NumTypes {
		for _, d := range manifest.Join(v.Before.Types[t], v.After.Types[t], c.layer) {
			if d.New == nil && v.After.Types[t].Pending(d.Name) {
				continue
			}
			v.Changed = v.differ(v.Changed, Pair{t, d.Name, d.Old, d.New})
		}
	}
	v.Agent = v.differ(v.Agent, Pair{xds.Unknown, "name table", v.Before.Names.Get(""), v.After.Names.Get("")})
	v.Agent = v.differ(v.Agent, Pair{xds.Unknown, "bootstrap", v.Before.Bootstrap, v.After.Bootstrap})
}

// differ appends p to pairs if the versions of the resource differ. It also adds the size of the new version to
// v.Bytes.
func (v *View) differ(pairs []Pair, p Pair) []Pair {
	if p.Old == p.New || p.Old != nil && p.New != nil && p.Old.Version == p.New.Version {
		return pairs
	}
	if p.New != nil {
		v.Bytes += int64(p.New.Size())
	}
	return append(pairs, p)
}

// problemSet is a set of problems.
type problemSet map[model.Problem]bool

// problemsOf returns the problems that resolving, and planning visible proxies, have found in objects of visible
// namespaces. The error is that of ctx.
func problemsOf(ctx context.Context, b *plan.Base, sees Sees) (problemSet, error) {
	planned, err := b.Planner.ProblemsUntil(ctx, sees)
	if err != nil {
		return nil, err
	}
	all := problemSet{}
	for _, p := range slices.Concat(planned, b.Resolver.Problems()) {
		if sees == nil {
			p.Message = p.Full()
		}
		p.Whole = "" // otherwise a problem would differ for a tenant by objects that the tenant does not see
		if sees.of(p.Key.Namespace) {
			all[p] = true
		}
	}
	return all, nil
}

// to returns the problems that only the later set has (New), and the problems that only s has (Gone).
func (s problemSet) to(later problemSet) Problems {
	without := func(a, b problemSet) []model.Problem {
		only := maps.Clone(a)
		maps.DeleteFunc(only, func(p model.Problem, _ bool) bool { return b[p] })
		return slices.SortedFunc(maps.Keys(only), model.Problem.Compare)
	}
	return Problems{New: without(later, s), Gone: without(s, later)}
}
