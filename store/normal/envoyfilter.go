package normal

import (
	"fmt"
	"regexp"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// envoyFilterRecords checks the shape of an EnvoyFilter. Whether a patch's value is what Envoy expects there is judged
// where it is applied: no Envoy types here.
func envoyFilterRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	filter := &networkingv1.EnvoyFilter{}
	if !r.spec(obj, filter) {
		return nil
	}
	r.selector("spec.workloadSelector.labels", filter.WorkloadSelector.GetLabels())
	if filter.WorkloadSelector != nil && len(filter.TargetRefs) > 0 {
		r.errorf("spec.targetRefs", "stands with workloadSelector: one of the two")
	}
	if len(filter.ConfigPatches) == 0 {
		r.warnf(problem.NoEffect, "spec.configPatches", "none: the EnvoyFilter does nothing")
	}
	for i, p := range filter.ConfigPatches {
		checkPatch(r, fmt.Sprintf("spec.configPatches[%d]", i), p)
	}
	return r.record(model.KindEnvoyFilter, obj, obj.ID.Name, filter)
}

func checkPatch(r *report, at string, p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) {
	if _, known := networkingv1.EnvoyFilter_ApplyTo_name[int32(p.ApplyTo)]; !known || p.ApplyTo == networkingv1.EnvoyFilter_INVALID {
		r.requiredf(at+".applyTo", "must be stated")
	}
	op := p.GetPatch().GetOperation()
	if p.Patch == nil {
		r.requiredf(at+".patch", "must not be empty")
		return
	}
	if _, known := networkingv1.EnvoyFilter_Patch_Operation_name[int32(op)]; !known || op == networkingv1.EnvoyFilter_Patch_INVALID {
		r.requiredf(at+".patch.operation", "must be stated")
	}
	if op != networkingv1.EnvoyFilter_Patch_REMOVE && p.Patch.Value == nil {
		r.requiredf(at+".patch.value", "must not be empty for operation %v", op)
	}
	if op == networkingv1.EnvoyFilter_Patch_REMOVE && p.Patch.Value != nil {
		r.errorf(at+".patch.value", "operation REMOVE takes none")
	}
	checkPatchMatch(r, at, p)
	ordered := map[networkingv1.EnvoyFilter_ApplyTo]bool{
		networkingv1.EnvoyFilter_NETWORK_FILTER: true, networkingv1.EnvoyFilter_HTTP_FILTER: true,
		networkingv1.EnvoyFilter_HTTP_ROUTE: true, networkingv1.EnvoyFilter_LISTENER_FILTER: true,
	}
	switch op {
	case networkingv1.EnvoyFilter_Patch_INSERT_BEFORE, networkingv1.EnvoyFilter_Patch_INSERT_AFTER, networkingv1.EnvoyFilter_Patch_INSERT_FIRST:
		if !ordered[p.ApplyTo] {
			r.warnf(problem.NoEffect, at+".patch.operation", "%v has no place in %v: the patch is ignored", op, p.ApplyTo)
		}
	case networkingv1.EnvoyFilter_Patch_ADD, networkingv1.EnvoyFilter_Patch_MERGE, networkingv1.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST, networkingv1.EnvoyFilter_Patch_REMOVE:
		if p.ApplyTo == networkingv1.EnvoyFilter_BOOTSTRAP && op != networkingv1.EnvoyFilter_Patch_MERGE {
			r.warnf(problem.NoEffect, at+".patch.operation", "is MERGE alone for BOOTSTRAP, not %v: the patch is ignored", op)
		}
		if op != networkingv1.EnvoyFilter_Patch_ADD && p.ApplyTo == networkingv1.EnvoyFilter_EXTENSION_CONFIG {
			r.warnf(problem.NoEffect, at+".patch.operation", "is ADD alone for EXTENSION_CONFIG, not %v: the patch is ignored", op)
		}
	case networkingv1.EnvoyFilter_Patch_REPLACE:
		if p.ApplyTo != networkingv1.EnvoyFilter_HTTP_FILTER && p.ApplyTo != networkingv1.EnvoyFilter_NETWORK_FILTER && p.ApplyTo != networkingv1.EnvoyFilter_LISTENER_FILTER {
			r.analysef(problem.EnvoyFilterUsesReplaceOperationIncorrectly, problem.NoEffect, at+".patch.operation", "REPLACE is for filters only: the patch is ignored")
		}
	}
}

// checkPatchMatch holds that the match is about the kind of thing that the patch applies to.
func checkPatchMatch(r *report, at string, p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) {
	m := p.Match
	if expr := m.GetProxy().GetProxyVersion(); expr != "" {
		if _, err := regexp.Compile(expr); err != nil {
			r.errorf(at+".match.proxy.proxyVersion", "is no regular expression (RE2): %v", err)
		}
	}
	if m.GetObjectTypes() == nil || m.GetWaypoint() != nil {
		return
	}
	want := ""
	switch p.ApplyTo {
	case networkingv1.EnvoyFilter_LISTENER, networkingv1.EnvoyFilter_FILTER_CHAIN, networkingv1.EnvoyFilter_NETWORK_FILTER,
		networkingv1.EnvoyFilter_HTTP_FILTER, networkingv1.EnvoyFilter_LISTENER_FILTER:
		if m.GetListener() == nil {
			want = "listener"
		}
	case networkingv1.EnvoyFilter_ROUTE_CONFIGURATION, networkingv1.EnvoyFilter_VIRTUAL_HOST, networkingv1.EnvoyFilter_HTTP_ROUTE:
		if m.GetRouteConfiguration() == nil {
			want = "routeConfiguration"
		}
	case networkingv1.EnvoyFilter_CLUSTER:
		if m.GetCluster() == nil {
			want = "cluster"
		}
	}
	if m.GetListener() != nil && want == "" {
		checkFilterMatch(r, at+".match.listener.filterChain.filter", p.ApplyTo, m.GetListener().GetFilterChain().GetFilter())
	}
	if want != "" {
		r.requiredf(at+".match", "applyTo %v needs a match on %s", p.ApplyTo, want)
	}
}

// connectionManagers are the names of the one filter that has filters below it.
var connectionManagers = []string{"envoy.filters.network.http_connection_manager", "envoy.http_connection_manager"}

// checkFilterMatch holds that a filter is matched by its name, and one below it only where there is one (Istio: validateEnvoyFilter).
func checkFilterMatch(r *report, at string, applyTo networkingv1.EnvoyFilter_ApplyTo, f *networkingv1.EnvoyFilter_ListenerMatch_FilterMatch) {
	switch sub := f.GetSubFilter(); {
	case f == nil:
	case f.Name == "":
		r.refusef(problem.Required, at+".name", "must not be empty")
	case sub == nil:
	case applyTo != networkingv1.EnvoyFilter_HTTP_FILTER:
		r.refusef(problem.Invalid, at+".subFilter", "is for applyTo HTTP_FILTER, not %v", applyTo)
	case !slices.Contains(connectionManagers, f.Name):
		r.refusef(problem.Invalid, at+".name", "%q has no subFilter: want %s", f.Name, connectionManagers[0])
	case sub.Name == "":
		r.refusef(problem.Required, at+".subFilter.name", "must not be empty")
	}
}
