package input

import (
	"iter"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// PatchSet is the patches that reach one side of a proxy, in order of application.
type PatchSet []model.Patch

// PatchesOf resolves the patches of a view. What cannot be applied at all is left out, with a problem.
func (in *Input) Patches(refs intern.List[view.Patch]) (set PatchSet, found []Problem) {
	for _, ref := range refs.All() {
		r, ok := in.Get(ref.Filter)
		if !ok || ref.Index >= len(r.(*model.EnvoyFilter).Spec.GetConfigPatches()) {
			continue // of a view that its proxies are about to leave
		}
		p := model.Patch{Filter: r.(*model.EnvoyFilter), Index: ref.Index}
		if err := patch.Problem(p); err != nil {
			found = append(found, model.ProblemOf(err, ref.Filter))
			continue
		}
		set = append(set, p)
	}
	return set, found
}

// NotPatched are problems of EnvoyFilters that select, by labels, an application that is no Envoy. Of those for all proxies nobody expects it.
func (in *Input) NotPatched(refs intern.List[view.Patch]) (found []Problem) {
	for _, ref := range refs.All() {
		if r, ok := in.Get(ref.Filter); ok && len(r.(*model.EnvoyFilter).Spec.GetWorkloadSelector().GetLabels()) > 0 {
			found = append(found, Warning(ref.Filter, problem.NotSupported, "spec.workloadSelector",
				"selects an application with gRPC's own xDS client, which takes no patches (proxyless gRPC)"))
		}
	}
	return found
}

// Matching is the patches that a predicate picks.
func (s PatchSet) Matching(pick func(model.Patch) bool) intern.List[model.Patch] {
	var found []model.Patch
	for _, p := range s {
		if pick(p) {
			found = append(found, p)
		}
	}
	return patchLists.List(found...)
}

// Any says whether a predicate picks one.
func (s PatchSet) Any(pick func(model.Patch) bool) bool {
	for _, p := range s {
		if pick(p) {
			return true
		}
	}
	return false
}

// Added builds the clusters and listeners that patches add on one side; a patch for any side adds on the outbound one, which
// is all that a gateway has.
func (in *Input) Added(set PatchSet, side networkingv1.EnvoyFilter_PatchContext, found *[]Problem) iter.Seq[layer.Unit] {
	return func(yield func(layer.Unit) bool) {
		for _, p := range set {
			on := p.Config().GetMatch().GetContext()
			if on == networkingv1.EnvoyFilter_ANY && side != networkingv1.EnvoyFilter_SIDECAR_INBOUND {
				on = side
			}
			var spec pool.ResourceSpec
			if _, ok := patch.AddsCluster(p); ok {
				spec = cluster.Added{Patch: p}
			} else if patch.AddsListener(p) {
				spec = listener.Added{Patch: p}
			}
			if on != side || spec == nil {
				continue
			}
			if u, ok := in.Make(spec, p.Filter.Key, found); ok && !yield(u) {
				return
			}
		}
	}
}

// RemovesCluster says whether a patch removes a cluster; hosts are those of the services behind an inbound one.
func RemovesCluster(p model.Patch, side networkingv1.EnvoyFilter_PatchContext, name string, hosts ...string) bool {
	return patch.RemovesCluster(p) && patch.ClusterMatches(p, side, name, hosts...)
}

// RemovesCluster says whether one of them removes a cluster that no inbound service is behind.
func (s PatchSet) RemovesCluster(side networkingv1.EnvoyFilter_PatchContext, name string) bool {
	return s.Any(func(p model.Patch) bool { return RemovesCluster(p, side, name) })
}

// MergesCluster says whether a patch is merged into a cluster.
func MergesCluster(p model.Patch, side networkingv1.EnvoyFilter_PatchContext, name string, hosts ...string) bool {
	return !patch.RemovesCluster(p) && patch.ClusterMatches(p, side, name, hosts...)
}
