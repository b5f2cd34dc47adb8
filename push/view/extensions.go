package view

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Extension is a WasmPlugin or TrafficExtension that selects a proxy, and how the proxy runs it.
type Extension struct {
	Key model.Key
	Way extension.Way
	Why string // of a way that does not run it: which proxies cannot
}

var (
	extensions intern.Table[Extension]
	filters    intern.Table[extension.Filter]
)

// extensionCaps are the capabilities by which it is decided how a proxy runs extensions: nothing else reads them, so
// they split no scope.
const extensionCaps = xds.CapLua | xds.CapWasmHTTP | xds.CapWasmNetwork | xds.CapWasmFetch

// extensionsOf lists the WasmPlugins and TrafficExtensions that select the proxy: by priority, those of its namespace
// before those of the root namespace where that is equal. Those with targetRefs are for gateways and waypoints
// (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/).
func extensionsOf(s *mirror.Snapshot, root string, n Node) (found []*model.TrafficExtension) {
	for _, namespace := range slices.Compact([]string{n.Namespace, root}) {
		for _, kind := range []model.Kind{model.KindWasmPlugin, model.KindTrafficExtension} {
			for r := range s.In(kind, namespace) {
				e := r.(*model.TrafficExtension)
				if len(e.Spec.GetTargetRefs()) == 0 && model.Matches(e.Spec.GetSelector().GetMatchLabels(), n.Labels) {
					found = append(found, e)
				}
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *model.TrafficExtension) int {
		own := func(e *model.TrafficExtension) int {
			if e.Key.Namespace == n.Namespace {
				return 0
			}
			return 1
		}
		return extension.Compare(a, b, own(a)-own(b))
	})
	return found
}

// extend adds to a view what extensions make of it: the configurations, which belong to the workload, and the filters
// of its outbound listeners. Those of its inbound listeners follow from the former.
func (v *View) extend(found []*model.TrafficExtension, n Node) {
	if len(found) == 0 {
		return
	}
	var uses []Extension
	var outbound []extension.Filter
	for _, e := range found {
		way, why := extension.WayOf(e, n.Caps)
		uses = append(uses, Extension{e.Key, way, why})
		if f, is := extension.FilterOf(e, way, extension.Outbound); is && n.Kind == Sidecar {
			outbound = append(outbound, f)
		}
		if f, is := extension.FilterOf(e, way, extension.Inbound); is && f.Closed && n.Kind == Proxyless {
			v.Workload.Closed = true // it has no filters: what cannot be run there closes the server
		}
	}
	v.Workload.Extensions, v.Inputs.Extensions = extensions.List(uses...), filters.List(outbound...)
}

// layersOf says which layers of a proxy a patch reaches. A patch that gives the configuration of a filter is for the
// whole proxy, whatever its context, as in istiod: Envoy asks for the configuration by the name that its listeners
// have. So is a patch of the bootstrap. Both belong to the workload's layer, so that they split no scope; a kind
// without an inbound side has no workload's layer but for its bootstrap. The workload's own listeners have to know
// whether a patch removes the cluster of a provider.
func layersOf(p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch, of Kind) (scope, workload bool) {
	context, kind := p.GetMatch().GetContext(), kinds[of]
	switch p.GetApplyTo() {
	case networkingv1.EnvoyFilter_BOOTSTRAP:
		return false, true
	case networkingv1.EnvoyFilter_EXTENSION_CONFIG:
		return !kind.inbound, kind.inbound
	default:
	}
	both := context == networkingv1.EnvoyFilter_ANY
	out, in := context == kind.outbound, context == networkingv1.EnvoyFilter_SIDECAR_INBOUND
	removes := p.GetApplyTo() == networkingv1.EnvoyFilter_CLUSTER && p.GetPatch().GetOperation() == networkingv1.EnvoyFilter_Patch_REMOVE
	return both || out, kind.inbound && (both || in || out && removes)
}
