package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

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
	fewViews     = 10  // an object that adds fewer views to a namespace is not reported
	mostReaders  = 100 // objects without which the views are counted again
	mostMeasured = 200 // scopes whose configuration is planned
)

// sidecars returns a node for each Pod with a sidecar, by namespace. Of Pods with equal labels at one place, it returns
// one.
func (w *world) sidecars() map[string][]view.Node {
	all, seen := map[string][]view.Node{}, map[string]bool{}
	for l := range each[*model.Workload](w, model.KindWorkload) {
		e, id := l.Spec.GetEndpoint(), normal.SourceObject(l.Key)
		if !e.GetMtls() || id.Kind != "Pod" || len(w.router(id.Namespace, e.GetLabels()).gateways) > 0 {
			continue
		}
		key := fmt.Sprint(id.Namespace, e.GetLabels(), e.GetLocality(), e.GetNetwork(), e.GetServiceAccount(), e.GetWorkload())
		if seen[key] {
			continue
		}
		seen[key] = true
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
// an object reads a property in which the Pods differ: a label, the locality, the network or the name.
func multipliers(w *world) {
	x := view.NewIndex(w.known)
	var readers []model.Record
	for _, kind := range []model.Kind{model.KindVirtualService, model.KindDestinationRule, model.KindTelemetry, model.KindEnvoyFilter,
		model.KindService, model.KindServiceEntry} {
		for r := range w.known.All(kind) {
			if len(readers) < mostReaders && x.Apply(mirror.Edit{Old: r}) {
				readers = append(readers, r)
				x.Apply(mirror.Edit{New: r})
			}
		}
	}
	if len(readers) == 0 {
		return
	}
	nodes, with := w.sidecars(), map[string]int{}
	for namespace, of := range nodes {
		if with[namespace] = viewsOf(x, w.known, of); with[namespace] < fewViews {
			delete(nodes, namespace)
		}
	}
	for _, r := range readers {
		s := w.known.Apply(w.known.Revision(), nil, []model.Key{r.Meta().Key}).New
		x.Apply(mirror.Edit{Old: r})
		most, at, without := 0, "", 0
		for _, namespace := range sorted(nodes) {
			if n := viewsOf(x, s, nodes[namespace]); with[namespace] > 2*n && with[namespace]-n >= max(fewViews, most+1) {
				most, at, without = with[namespace]-n, namespace, n
			}
		}
		x.Apply(mirror.Edit{New: r})
		if at != "" {
			w.foundRecord(problem.ViewsMultiplied, r, "spec", "the sidecars of namespace %s have %d different configurations, and %d without "+
				"this object: each is planned and kept by its own; match labels that many Pods share", at, with[at], without)
		}
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
	for _, namespace := range slices.Sorted(maps.Keys(nodes)) {
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
			w.found(problem.ProxyOverBudget, id, "", "sidecars such as %s get %d bytes and %d clusters, more than the budget of %d bytes: import "+
				"fewer hosts in a Sidecar (navarchctl suggest sidecar)", n.Name+"."+n.Namespace, size, clusters, w.ProxyBytes)
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
