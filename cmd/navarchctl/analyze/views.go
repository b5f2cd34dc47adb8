package analyze

import (
	"cmp"
	"fmt"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/problem"
)

// The limits of multipliers and overBudget.
const (
	fewViews     = 10   // an object that adds fewer views to a namespace is not reported
	mostReaders  = 100  // objects without which the views are counted again
	mostNodes    = 2000 // sidecars of a namespace whose views are counted
	mostMeasured = 200  // scopes whose configuration is planned
)

// sidecars returns a node for each Pod with a sidecar, by namespace. Of Pods with equal labels at one place, it returns
// one.
func (w *world) sidecars() map[string][]view.Node {
	all, seen := map[string][]view.Node{}, map[string]bool{}
	for l := range each[*model.Workload](w, model.KindWorkload) {
		e, id := l.Spec.GetEndpoint(), normal.SourceObject(l.Key)
		if !e.GetMtls() || id.Kind != "Pod" {
			continue
		}
		key := fmt.Sprint(id.Namespace, e.GetLabels(), e.GetLocality(), e.GetNetwork(), e.GetServiceAccount(), e.GetWorkload())
		if seen[key] {
			continue
		}
		seen[key] = true
		if w.isRouter(id.Namespace, e.GetLabels()) {
			continue
		}
		all[id.Namespace] = append(all[id.Namespace], view.Node{ID: "sidecar~" + e.GetAddress() + "~" + id.Name + "." + id.Namespace + "~",
			Kind: view.Sidecar, Name: id.Name, Namespace: id.Namespace, Domain: "svc." + cmp.Or(w.Normal.Domain, "cluster.local"),
			Addresses: []string{e.GetAddress()},
			Labels:    e.GetLabels(), Workload: e.GetWorkload(), Account: e.GetServiceAccount(), Network: e.GetNetwork(),
			Locality: e.GetLocality(), Caps: xds.StockCaps})
	}
	return all
}

// viewsOf returns the number of views of nodes: the number of configurations that a replica plans for them. Differences
// of the Pods' own addresses do not count, because no object but the Pods themselves decides them.
func viewsOf(x *view.Index, s *mirror.Snapshot, nodes []view.Node) int {
	all := map[view.View]bool{}
	for _, n := range nodes {
		v := x.View(s, n)
		v.Addresses, v.Workload.Addresses = intern.List[string]{}, intern.List[string]{}
		all[v] = true
	}
	return len(all)
}

// multipliers reports an object without which the sidecars of a namespace would have less than half as many views. Such
// an object reads a property in which the Pods differ: a label, the locality, the network or the name. Of a namespace,
// the first mostNodes Pods count.
func multipliers(w *world) {
	x := view.NewIndex(w.known)
	readers := w.readers(x)
	if len(readers) == 0 {
		return
	}
	nodes, with := w.sidecars(), map[string]int{}
	for namespace, of := range nodes {
		nodes[namespace] = of[:min(len(of), mostNodes)]
		with[namespace] = viewsOf(x, w.known, nodes[namespace])
	}
	none := w.without(x, readers...)
	for namespace := range nodes {
		if fewer := viewsOf(x, none, nodes[namespace]); with[namespace] <= 2*fewer || with[namespace]-fewer < fewViews {
			delete(nodes, namespace) // no reader alone makes so many views
		}
	}
	restore(x, readers...)
	for _, r := range readers {
		if len(nodes) == 0 {
			return
		}
		s := w.without(x, r)
		most, at := 0, ""
		for _, namespace := range sorted(nodes) {
			n := viewsOf(x, s, nodes[namespace])
			if more := with[namespace] - n; with[namespace] > 2*n && more >= max(fewViews, most+1) {
				most, at = more, namespace
			}
		}
		restore(x, r)
		if at != "" {
			w.foundRecord(problem.ViewsMultiplied, r, "spec", "the sidecars of namespace %s have %d different configurations, and %d "+
				"without this object: each is planned and kept by its own; match labels that many Pods share", at, with[at], with[at]-most)
		}
	}
}

// readers returns the first mostReaders records, by kind and key, that read a property of proxies which no other record
// reads.
func (w *world) readers(x *view.Index) (all []model.Record) {
	for _, kind := range []model.Kind{model.KindVirtualService, model.KindDestinationRule, model.KindTelemetry, model.KindEnvoyFilter,
		model.KindService, model.KindServiceEntry} {
		for r := range w.known.All(kind) {
			if len(all) == mostReaders {
				return all
			}
			if x.Apply(mirror.Edit{Old: r}) {
				all = append(all, r)
			}
			x.Apply(mirror.Edit{New: r})
		}
	}
	return all
}

// without removes records from the index, and returns the configuration without them.
func (w *world) without(x *view.Index, records ...model.Record) *mirror.Snapshot {
	var keys []model.Key
	for _, r := range records {
		x.Apply(mirror.Edit{Old: r})
		keys = append(keys, r.Meta().Key)
	}
	return w.known.Apply(w.known.Revision(), nil, keys).New
}

// restore adds records to the index again.
func restore(x *view.Index, records ...model.Record) {
	for _, r := range records {
		x.Apply(mirror.Edit{New: r})
	}
}

// overBudget plans one sidecar of each scope (the sidecars that import the same), and reports those whose configuration
// has more bytes than Config.ProxyBytes. Secrets do not count.
func overBudget(w *world) {
	if w.ProxyBytes <= 0 {
		return
	}
	planner := plan.New(plan.Settings{Snapshot: w.known, Cluster: w.Normal.Cluster})
	x, seen := view.NewIndex(w.known), map[view.Scope]bool{}
	nodes := w.sidecars()
	for _, namespace := range sorted(nodes) {
		for _, n := range nodes[namespace] {
			scope := x.View(w.known, n).Scope
			if seen[scope] || len(seen) >= mostMeasured {
				continue
			}
			seen[scope] = true
			size, clusters := measured(planner, n)
			if size <= w.ProxyBytes {
				continue
			}
			id := w.id("", "Namespace", "", namespace)
			if scope.Sidecar != (model.Key{}) {
				id = normal.SourceObject(scope.Sidecar)
			}
			w.found(problem.ProxyOverBudget, id, "", "sidecars such as %s get %d bytes and %d clusters, more than the budget of %d bytes: "+
				"import fewer hosts in a Sidecar (navarchctl suggest sidecar)", n.Name+"."+n.Namespace, size, clusters, w.ProxyBytes)
		}
	}
}

// measured returns the bytes of all resources of a node, and the number of its clusters.
func measured(planner *plan.Planner, n view.Node) (size int64, clusters int) {
	proxy := planner.Join(n)
	defer planner.Leave(proxy)
	all := inspect.Of(proxy.Set())
	for _, resources := range all {
		for _, r := range resources {
			size += int64(r.Size())
		}
	}
	return size, len(all[xds.Cluster])
}
