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

// Extension is a WasmPlugin or TrafficExtension that selects a proxy, and the way in which the proxy runs it.
type Extension struct {
	Key model.Key
	Way extension.Way
	Why string // if Way is that the proxy does not run it: the reason
}

var (
	extensions intern.Table[Extension]
	filters    intern.Table[extension.Filter]
)

// extensionCaps are the capabilities that decide Extension.Way. Nothing else reads them, so they split no scope.
const extensionCaps = xds.CapLua | xds.CapWasmHTTP | xds.CapWasmNetwork | xds.CapWasmFetch

// extensionsOf lists the WasmPlugins and TrafficExtensions that select the proxy, by priority. At equal priority those
// of its namespace come before those of the root namespace
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

// extend adds the effects of extensions to a View: to the workload the extensions themselves, to the inputs the filters
// of outbound listeners. Filters of inbound listeners are derived from the workload's extensions later.
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
			v.Workload.Closed = true // without filters, an extension that has to run closes the server
		}
	}
	v.Workload.Extensions, v.Inputs.Extensions = extensions.List(uses...), filters.List(outbound...)
}

// layersOf reports which layers of a proxy a patch applies to. A patch with the configuration of a filter
// (EXTENSION_CONFIG) applies to the whole proxy, whatever its context, as in istiod: Envoy requests the configuration
// by the name in its listeners. So does a patch of the bootstrap. Both belong to the workload layer, so they split no
// scope. A kind without an inbound side has a workload layer only for its bootstrap. A patch that removes outbound
// clusters applies to the workload too: inbound listeners depend on whether the cluster of a provider exists.
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
