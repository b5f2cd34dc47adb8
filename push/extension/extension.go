// Package extension computes the effect of WasmPlugins and TrafficExtensions on one proxy. The effect is the way in
// which the proxy runs an extension, and the filters in the proxy's listeners
// (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/).
//
// Owns: the table of interned port lists; otherwise the functions are pure. Reads: the records in its arguments. Never:
// reads the snapshot of all records; builds Envoy's protobuf messages.
//
// # Filters that Envoy discovers
//
// A listener may name a filter whose configuration Envoy fetches separately (ECDS, xds.Extension). WasmPlugins and
// TrafficExtensions become such filters. EnvoyFilters with applyTo EXTENSION_CONFIG add such configurations. Records of
// WasmPlugins have the form of a TrafficExtension.
//
// A view is the part of the plan that proxies with equal inputs share. The configurations of filters belong to the part
// of a view that only one workload has, even those for outbound listeners. So proxies with different extensions still
// share their other outbound configuration. An edit of a filter's configuration changes no listener. The filters of
// inbound listeners follow from view.Workload.Extensions. The filters of outbound listeners are in
// view.Inputs.Extensions. Different filters make different listeners, but not different routes, clusters or endpoints.
//
// If a proxy cannot run an extension, the filter is left out, or the matched traffic is refused
// (listener.Common.Extensions). A problem of the extension's object (problem.NotSupported) then states the number of
// selected workloads with such proxies.
//
// push/delta never removes a configuration from a proxy, because a listener may still name its filter. Clusters that a
// configuration names stay as long as the proxy subscribes to the configuration.
//
// A listener becomes active only when it has all its configurations. So each configuration has a substitute, its
// stand-in (xds.Resource.StandIn). A proxy without an earlier good version gets the stand-in if it has refused the
// configuration, or if the configuration is withheld from it. The stand-in refuses traffic or lets it pass, as
// failStrategy states. A configuration that an EnvoyFilter adds has no stand-in. The author of the EnvoyFilter also
// adds the filter, and states how the filter behaves without a configuration (initial_fetch_timeout, default_config).
package extension

import (
	"cmp"
	"math"
	"slices"
	"strings"

	extensionsv1 "istio.io/api/extensions/v1alpha1"
	typev1 "istio.io/api/type/v1beta1"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/pullsecret"
)

// Way is the way in which a proxy runs an extension, or the reason why it does not.
type Way uint8

// The values of Way.
const (
	ByEnvoy Way = iota // Envoy runs the extension without the help of an agent
	ByAgent            // the proxy's agent fetches the module, and Envoy reads it from a file (Istio's pilot-agent)
	Left               // the proxy cannot run the extension, and traffic passes without the filter (FAIL_OPEN)
	Closed             // the proxy cannot run the extension, and the matched traffic is refused
)

// Runs reports whether the proxy runs the extension.
func (w Way) Runs() bool { return w == ByEnvoy || w == ByAgent }

// WayOf returns the way in which a proxy with the capabilities caps runs an extension. For Left and Closed, why
// describes the proxies that cannot run it, for messages; otherwise why is "". Without an agent that fetches modules, a
// proxy supports only modules in files, and modules over HTTP with a stated sha256. Envoy refuses other modules
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/core/v3/base.proto#config-core-v3-remotedatasource). An
// extension without wasm counts as Lua, and is Closed if the proxy lacks Envoy's Lua filter. A module that cannot run
// is Left if its failStrategy is FAIL_OPEN, and otherwise Closed.
func WayOf(e *model.TrafficExtension, caps xds.Caps) (way Way, why string) {
	wasm := e.Spec.GetWasm()
	if wasm == nil {
		if caps.Has(xds.CapLua) {
			return ByEnvoy, ""
		}
		return Closed, "proxies without Envoy's Lua filter"
	}
	filter := xds.CapWasmHTTP
	if OnConnections(e) {
		filter = xds.CapWasmNetwork
	}
	scheme, _, _ := strings.Cut(strings.ToLower(URL(wasm)), "://")
	switch {
	case !caps.Has(filter):
		why = "proxies without Envoy's filter for WebAssembly"
	case scheme == "file":
		return ByEnvoy, ""
	case caps.Has(xds.CapWasmFetch):
		return ByAgent, ""
	case scheme == "oci":
		why = "proxies whose agent does not fetch images"
	case wasm.GetSha256() == "":
		why = "proxies whose agent does not fetch modules: their Envoy requires sha256"
	default:
		return ByEnvoy, ""
	}
	if wasm.GetFailStrategy() == extensionsv1.FailStrategy_FAIL_OPEN {
		return Left, why
	}
	return Closed, why
}

// URL returns the URL of a module. A URL without "://" means an image and gets the scheme oci. The result for a nil
// module, or one without a URL, is "oci://".
func URL(wasm *extensionsv1.WasmConfig) string {
	if strings.Contains(wasm.GetUrl(), "://") {
		return wasm.GetUrl()
	}
	return "oci://" + wasm.GetUrl()
}

// Registry returns the registry of a module's image if the image is fetched with a credential (imagePullSecret). It
// returns "" if the module does not have an imagePullSecret, is not an image, or has an invalid URL.
func Registry(wasm *extensionsv1.WasmConfig) string {
	if wasm.GetImagePullSecret() == "" {
		return ""
	}
	return pullsecret.Registry(URL(wasm))
}

// OnConnections reports whether an extension is a network filter. All other extensions are HTTP filters.
func OnConnections(e *model.TrafficExtension) bool {
	return e.Spec.GetWasm().GetType() == extensionsv1.PluginType_NETWORK
}

// PullSecretVariable is the variable of a module's environment that has the credentials of registries, in the format of
// Docker's configuration. Istio's agent reads and removes it. If its value is empty, the agent does not fetch the
// module (istio: pkg/wasm/convert.go).
const PullSecretVariable = "ISTIO_META_WASM_IMAGE_PULL_SECRET"

// Name returns the name with which Envoy requests the configuration of an extension. It is Istio's name, including the
// misspelling "extenstions" (istio: pilot/pkg/model/extensions.go). extension is the key of a WasmPlugin or
// TrafficExtension.
func Name(extension model.Key) string {
	prefix := "extenstions.istio.io/wasmplugin/"
	if extension.Kind == model.KindTrafficExtension {
		prefix = "extensions.istio.io/trafficextension/"
	}
	return prefix + extension.Namespace + "." + extension.Name
}

// Filter is the filter of an extension in the listeners of one side (outbound or inbound) of a proxy. It is comparable.
type Filter struct {
	Extension     model.Key           // key of the WasmPlugin or TrafficExtension
	Phase         Phase               // position among Istio's filters
	OnConnections bool                // true: a network filter; false: an HTTP filter
	Lua           bool                // true: Lua; false: WebAssembly
	Closed        bool                // the proxy cannot run the extension, so traffic to Ports is refused
	Ports         intern.List[uint32] // ports to which the filter applies, sorted, each once; empty: all
}

// Phase is the position of a filter among Istio's own filters, such as before authentication.
type Phase = extensionsv1.TrafficExtension_ExecutionPhase

// Side is a direction of traffic, Outbound or Inbound.
type Side = typev1.WorkloadMode

// The values of Side.
const (
	Outbound = typev1.WorkloadMode_CLIENT // traffic that the workload sends
	Inbound  = typev1.WorkloadMode_SERVER // traffic that the workload receives
)

// ports interns the lists of ports.
var ports intern.Table[uint32]

// FilterOf returns the filter of an extension in the listeners of a side. way is the result of WayOf. The filter
// applies to the ports of all matches for the side. It applies to all ports if the extension has no matches, or if a
// match for the side states no ports. A match without a mode is for both sides. FilterOf returns false, and the Filter
// must not be used, if way is Left or if all matches are for the opposite side.
func FilterOf(e *model.TrafficExtension, way Way, side Side) (Filter, bool) {
	if way == Left {
		return Filter{}, false
	}
	f := Filter{Extension: e.Key, Phase: e.Spec.GetPhase(), OnConnections: OnConnections(e),
		Lua: e.Spec.GetLua() != nil, Closed: way == Closed}
	var some []uint32
	matches, all := len(e.Spec.GetMatch()) == 0, len(e.Spec.GetMatch()) == 0
	for _, m := range e.Spec.GetMatch() {
		switch m.GetMode() {
		case side, typev1.WorkloadMode_UNDEFINED, typev1.WorkloadMode_CLIENT_AND_SERVER:
		default:
			continue
		}
		matches, all = true, all || len(m.GetPorts()) == 0
		for _, p := range m.GetPorts() {
			some = append(some, p.GetNumber())
		}
	}
	if !all {
		slices.Sort(some)
		f.Ports = ports.List(slices.Compact(some)...)
	}
	return f, matches
}

// Name returns the name of the filter's configuration.
func (f Filter) Name() string { return Name(f.Extension) }

// String returns the extension's key, for messages.
func (f Filter) String() string { return f.Extension.String() }

// On reports whether the filter applies to connections to a port. Port 0 stands for an unknown port, to which only
// filters for all ports apply.
func (f Filter) On(port uint32) bool {
	return f.Ports.Len() == 0 || slices.Contains(f.Ports.All(), port)
}

// Compare compares two extensions of a proxy in the order of their filters. It returns a negative number if a comes
// first, and 0 only for equal keys. The highest priority comes first, and extensions without a priority come last. For
// equal priorities the argument place decides: the caller's comparison of the namespaces of a and b. If place is 0, the
// older extension comes first. For equal ages, names and then keys decide.
func Compare(a, b *model.TrafficExtension, place int) int {
	return cmp.Or(cmp.Compare(priority(b), priority(a)), place, model.CompareCreated(a.Created, b.Created),
		cmp.Compare(a.Key.Name, b.Key.Name), a.Key.Compare(b.Key))
}

// priority returns the priority of an extension. An extension without a priority has the lowest int32, as in istiod.
func priority(e *model.TrafficExtension) int32 {
	if p := e.Spec.GetPriority(); p != nil {
		return p.GetValue()
	}
	return math.MinInt32
}
