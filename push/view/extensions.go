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

// Extension is a WasmPlugin or TrafficExtension that selects a proxy, and states how the proxy runs it. It is
// comparable.
type Extension struct {
	Key model.Key
	Way extension.Way
	Why string // the reason why the proxy does not run the extension; "" if it does
}

var (
	extensions intern.Table[Extension]
	filters    intern.Table[extension.Filter]
)

// extensionCaps is the set of capabilities that decide Extension.Way. No other decision reads them, so Scope.Caps does
// not contain them.
const extensionCaps = xds.CapLua | xds.CapWasmHTTP | xds.CapWasmNetwork | xds.CapWasmFetch

// extensionsOf returns the WasmPlugins and TrafficExtensions that select the proxy. They are sorted by priority, the
// highest first. At equal priority, extensions of the proxy's namespace come before extensions of the root namespace.
// Within a namespace, the oldest comes first
// (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/).
func extensionsOf(s *mirror.Snapshot, root string, n Node) (found []*model.TrafficExtension) {
	for _, namespace := range slices.Compact([]string{n.Namespace, root}) {
		for _, kind := range []model.Kind{model.KindWasmPlugin, model.KindTrafficExtension} {
			for r := range s.In(kind, namespace) {
				e := r.(*model.TrafficExtension)
				if model.Attaches(e.Key, e.Spec.GetTargetRefs(), e.Spec.GetSelector().GetMatchLabels(), n.Namespace, n.Labels) {
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

// extend adds the found extensions to a View. Workload.Extensions lists all of them. For a sidecar, Inputs.Extensions
// lists their filters in outbound listeners. The filters of inbound listeners are derived from Workload.Extensions
// later. If a required extension cannot run in an application without a proxy, extend closes the workload.
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
			v.Workload.Closed = true // the application runs no filters, and must not serve without the extension
		}
	}
	v.Workload.Extensions, v.Inputs.Extensions = extensions.List(uses...), filters.List(outbound...)
}

// layersOf reports whether a patch of an EnvoyFilter applies to the scope (the outbound side) and to the workload (the
// inbound side) of proxies. The parameter proxyKind is the kind of the proxies. The context of the patch decides, with
// these exceptions:
//
//   - Filter configurations (EXTENSION_CONFIG) apply to the whole proxy in any context, as in istiod, because Envoy
//     requests them by name. They belong to the workload, so proxies with different filter configurations can share a
//     scope. For a kind without an inbound side they belong to the scope.
//   - Patches of the bootstrap belong to the workload in any context.
//   - Patches that remove outbound clusters also apply to the workload, because inbound listeners use the outbound
//     clusters of extension providers.
func layersOf(p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch, proxyKind Kind) (scope, workload bool) {
	context, kind := p.GetMatch().GetContext(), kinds[proxyKind]
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
