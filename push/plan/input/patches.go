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

// PatchSet lists the patches that apply to a proxy, in order of application.
type PatchSet []model.Patch

// Patches returns the referenced patches, in the order of the references. A patch that cannot be applied is left out,
// and the second result has a problem for the patch. References to absent EnvoyFilters or patches are skipped. Both
// results are nil if they are empty.
func (in *Input) Patches(refs intern.List[view.Patch]) (set PatchSet, found []Problem) {
	for _, ref := range refs.All() {
		r, ok := in.Get(ref.Filter)
		if !ok || ref.Index >= len(r.(*model.EnvoyFilter).Spec.GetConfigPatches()) {
			continue // the view is outdated, and its proxies are about to leave it
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

// NotPatched returns a warning for each reference to a patch, for a client that is not an Envoy and takes no patches.
// It only reports EnvoyFilters that select workloads by labels. Authors of other EnvoyFilters do not expect them to
// apply to such clients.
func (in *Input) NotPatched(refs intern.List[view.Patch]) (found []Problem) {
	for _, ref := range refs.All() {
		if r, ok := in.Get(ref.Filter); ok && len(r.(*model.EnvoyFilter).Spec.GetWorkloadSelector().GetLabels()) > 0 {
			found = append(found, Warning(ref.Filter, problem.NotSupported, "spec.workloadSelector",
				"selects an application with gRPC's own xDS client, which takes no patches (proxyless gRPC)"))
		}
	}
	return found
}

// Matching returns the patches that satisfy a predicate, in order, as an interned list for Specs.
func (s PatchSet) Matching(pick func(model.Patch) bool) intern.List[model.Patch] {
	var found []model.Patch
	for _, p := range s {
		if pick(p) {
			found = append(found, p)
		}
	}
	return patchLists.List(found...)
}

// Any reports whether one of the patches satisfies a predicate.
func (s PatchSet) Any(pick func(model.Patch) bool) bool {
	for _, p := range s {
		if pick(p) {
			return true
		}
	}
	return false
}

// Added yields the clusters and listeners that patches add on one side, in order. A patch with context ANY counts for
// every side but SIDECAR_INBOUND. Resources are built while the caller iterates. If a build fails, a problem is
// appended to found, and the resource is left out.
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

// RemovesCluster reports whether a patch removes the cluster with a side and name. For an inbound cluster, the
// parameter hosts has the hosts of its services. For other clusters it is ignored.
func RemovesCluster(p model.Patch, side networkingv1.EnvoyFilter_PatchContext, name string, hosts ...string) bool {
	return patch.RemovesCluster(p) && patch.ClusterMatches(p, side, name, hosts...)
}

// RemovesCluster reports whether one of the patches removes the cluster with a side and name. It is for clusters of the
// outbound side and of gateways, whose patches match without hosts.
func (s PatchSet) RemovesCluster(side networkingv1.EnvoyFilter_PatchContext, name string) bool {
	return s.Any(func(p model.Patch) bool { return RemovesCluster(p, side, name) })
}

// MergesCluster reports whether a patch is merged into the cluster with a side and name. For an inbound cluster, the
// parameter hosts has the hosts of its services. For other clusters it is ignored.
func MergesCluster(p model.Patch, side networkingv1.EnvoyFilter_PatchContext, name string, hosts ...string) bool {
	return !patch.RemovesCluster(p) && patch.ClusterMatches(p, side, name, hosts...)
}
