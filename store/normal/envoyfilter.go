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

// envoyFilterRecords returns the record of an EnvoyFilter after validating its structure. The values of patches are
// messages of Envoy, so this package does not validate them. push validates the values when it applies the patches.
func envoyFilterRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	filter := &networkingv1.EnvoyFilter{}
	if !r.spec(obj, filter) {
		return nil
	}
	r.selector("spec.workloadSelector.labels", filter.WorkloadSelector.GetLabels())
	if filter.WorkloadSelector != nil && len(filter.TargetRefs) > 0 {
		r.errorf("spec.targetRefs", "cannot be combined with workloadSelector")
	}
	r.eachTarget(nil, filter.TargetRefs)
	if len(filter.ConfigPatches) == 0 {
		r.warnf(problem.NoEffect, "spec.configPatches", "is empty: the EnvoyFilter has no effect")
	}
	for i, p := range filter.ConfigPatches {
		checkPatch(r, fmt.Sprintf("spec.configPatches[%d]", i), p)
	}
	return r.record(model.KindEnvoyFilter, obj, obj.ID.Name, filter)
}

// checkPatch validates one patch except its value.
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
		r.warnf(problem.NoEffect, at+".patch.value", "has no effect with operation REMOVE")
	}
	checkPatchMatch(r, at, p)
	checkOperation(r, at, p)
}

// Lists of operations: merges, operations on unordered objects, operations on ordered objects, and operations on
// filters. Filters are ordered, and have names.
var (
	merging = []networkingv1.EnvoyFilter_Patch_Operation{networkingv1.EnvoyFilter_Patch_MERGE,
		networkingv1.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST}
	unordered = append(slices.Clone(merging), networkingv1.EnvoyFilter_Patch_ADD, networkingv1.EnvoyFilter_Patch_REMOVE)
	ordered   = append(slices.Clone(unordered), networkingv1.EnvoyFilter_Patch_INSERT_BEFORE, networkingv1.EnvoyFilter_Patch_INSERT_AFTER,
		networkingv1.EnvoyFilter_Patch_INSERT_FIRST)
	filters = append(slices.Clone(ordered), networkingv1.EnvoyFilter_Patch_REPLACE)
)

// operations maps each applyTo to the operations that have an effect. All other operations are ignored, as by istiod.
// The table follows the code of istiod (pilot/pkg/networking/core/envoyfilter, pilot/pkg/xds/bootstrapds.go). The API
// documentation differs from this code: it says that ADD and REMOVE are ignored for HTTP_ROUTE, and that REPLACE is for
// two kinds of filters only.
var operations = map[networkingv1.EnvoyFilter_ApplyTo][]networkingv1.EnvoyFilter_Patch_Operation{
	networkingv1.EnvoyFilter_LISTENER:            unordered,
	networkingv1.EnvoyFilter_FILTER_CHAIN:        unordered,
	networkingv1.EnvoyFilter_CLUSTER:             unordered,
	networkingv1.EnvoyFilter_VIRTUAL_HOST:        append(slices.Clone(unordered), networkingv1.EnvoyFilter_Patch_REPLACE),
	networkingv1.EnvoyFilter_HTTP_ROUTE:          ordered,
	networkingv1.EnvoyFilter_LISTENER_FILTER:     filters,
	networkingv1.EnvoyFilter_NETWORK_FILTER:      filters,
	networkingv1.EnvoyFilter_HTTP_FILTER:         filters,
	networkingv1.EnvoyFilter_ROUTE_CONFIGURATION: merging,
	networkingv1.EnvoyFilter_BOOTSTRAP:           {networkingv1.EnvoyFilter_Patch_MERGE},
	networkingv1.EnvoyFilter_EXTENSION_CONFIG:    {networkingv1.EnvoyFilter_Patch_ADD},
}

// checkOperation warns of a patch without effect. Either its operation has no effect for its applyTo, or REMOVE or
// REPLACE of a filter has a match that does not name a filter.
func checkOperation(r *report, at string, p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) {
	op, known := p.Patch.Operation, operations[p.ApplyTo]
	if known == nil || op == networkingv1.EnvoyFilter_Patch_INVALID {
		return // checkPatch reported an error
	}
	if !slices.Contains(known, op) {
		var analyzer problem.Analyzer
		switch {
		case op == networkingv1.EnvoyFilter_Patch_REPLACE:
			analyzer = problem.EnvoyFilterUsesReplaceOperationIncorrectly
		case p.ApplyTo != networkingv1.EnvoyFilter_ROUTE_CONFIGURATION:
		case op == networkingv1.EnvoyFilter_Patch_ADD:
			analyzer = problem.EnvoyFilterUsesAddOperationIncorrectly
		case op == networkingv1.EnvoyFilter_Patch_REMOVE:
			analyzer = problem.EnvoyFilterUsesRemoveOperationIncorrectly
		}
		r.analysef(analyzer, problem.NoEffect, at+".patch.operation", "%v does nothing to %v, and the patch is ignored: want one of %v", op,
			p.ApplyTo, known)
		return
	}
	if op != networkingv1.EnvoyFilter_Patch_REMOVE && op != networkingv1.EnvoyFilter_Patch_REPLACE {
		return
	}
	unnamed, chain := "", p.Match.GetListener().GetFilterChain()
	switch {
	case p.ApplyTo == networkingv1.EnvoyFilter_LISTENER_FILTER && p.Match.GetListener().GetListenerFilter() == "":
		unnamed = "listenerFilter"
	case p.ApplyTo == networkingv1.EnvoyFilter_NETWORK_FILTER && chain.GetFilter() == nil:
		unnamed = "filterChain.filter"
	case p.ApplyTo == networkingv1.EnvoyFilter_HTTP_FILTER && chain.GetFilter().GetSubFilter() == nil:
		unnamed = "filterChain.filter.subFilter"
	}
	if unnamed != "" {
		r.warnf(problem.NoEffect, at+".match.listener."+unnamed, "%v needs the name of a filter: without it the patch is ignored", op)
	}
}

// checkPatchMatch validates the match of a patch: proxyVersion must be a regular expression, and the type of the match
// must correspond to applyTo.
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
	case networkingv1.EnvoyFilter_LISTENER_FILTER, networkingv1.EnvoyFilter_BOOTSTRAP, networkingv1.EnvoyFilter_EXTENSION_CONFIG:
		// Istio accepts any match for these
		if p.ApplyTo != networkingv1.EnvoyFilter_LISTENER_FILTER || m.GetListener() == nil {
			r.warnf(problem.NoEffect, at+".match", "applyTo %v ignores a match on this kind of object: the patch applies as without the match",
				p.ApplyTo)
		}
		return
	case networkingv1.EnvoyFilter_LISTENER, networkingv1.EnvoyFilter_FILTER_CHAIN, networkingv1.EnvoyFilter_NETWORK_FILTER,
		networkingv1.EnvoyFilter_HTTP_FILTER:
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
	if f := m.GetListener().GetFilterChain().GetFilter(); f != nil && want == "" {
		if p.ApplyTo == networkingv1.EnvoyFilter_LISTENER || p.ApplyTo == networkingv1.EnvoyFilter_FILTER_CHAIN {
			r.warnf(problem.NoEffect, at+".match.listener.filterChain.filter", "is not looked at for applyTo %v", p.ApplyTo)
		}
		checkFilterMatch(r, at+".match.listener.filterChain.filter", p.ApplyTo, f)
	}
	if want != "" {
		r.requiredf(at+".match", "applyTo %v needs a match on %s", p.ApplyTo, want)
	}
}

// connectionManagers are the names of the HTTP connection manager, the only network filter with subfilters.
var connectionManagers = []string{"envoy.filters.network.http_connection_manager", "envoy.http_connection_manager"}

// checkFilterMatch refuses a match on a filter without its name, and a match on a subfilter where subfilters do not
// exist (Istio: validateEnvoyFilter).
func checkFilterMatch(r *report, at string, applyTo networkingv1.EnvoyFilter_ApplyTo,
	f *networkingv1.EnvoyFilter_ListenerMatch_FilterMatch) {
	switch sub := f.GetSubFilter(); {
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

// RelativePatch reports whether the effect of a patch depends on an existing element, which another patch may add or
// remove. Such patches are INSERT_BEFORE, INSERT_AFTER, REPLACE of an HTTP or network filter, and REMOVE of anything
// except HTTP routes and route configurations. The result is false for nil.
func RelativePatch(p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) bool {
	switch p.GetPatch().GetOperation() {
	case networkingv1.EnvoyFilter_Patch_INSERT_BEFORE, networkingv1.EnvoyFilter_Patch_INSERT_AFTER:
		return true
	case networkingv1.EnvoyFilter_Patch_REPLACE:
		return p.GetApplyTo() == networkingv1.EnvoyFilter_HTTP_FILTER || p.GetApplyTo() == networkingv1.EnvoyFilter_NETWORK_FILTER
	case networkingv1.EnvoyFilter_Patch_REMOVE:
		return p.GetApplyTo() != networkingv1.EnvoyFilter_ROUTE_CONFIGURATION && p.GetApplyTo() != networkingv1.EnvoyFilter_HTTP_ROUTE
	default:
		return false
	}
}
