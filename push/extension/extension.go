// Package extension computes the effect of WasmPlugins and TrafficExtensions on one proxy. The effect is the way in
// which the proxy runs each, and the filters in its listeners
// (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/).
//
// Owns: nothing; the functions are pure.  Reads: records of its arguments.  Never: the snapshot, Envoy's protobuf.
//
// # Filters that Envoy discovers
//
// A listener may name a filter whose configuration Envoy fetches separately (ECDS, xds.Extension). WasmPlugins,
// TrafficExtensions and EnvoyFilters with applyTo EXTENSION_CONFIG become such filters.
//
// The configurations belong to the workload layer of a view, for outbound listeners too. They split no scope, and an
// edit of one sends that configuration and no listener. The filters themselves are properties of the view. On the
// inbound side these are view.Workload.Extensions; on the outbound side view.Inputs.Extensions, which makes variants of
// listeners and of nothing else.
//
// Where a proxy cannot run an extension, the filter is left out, or the matched traffic is refused
// (listener.Common.Extensions). A metric counts these cases by workload.
//
// push/delta never removes a configuration from a proxy, because a listener may still name its filter. Clusters that
// the configuration names stay as long as the proxy subscribes to it.
//
// A listener does not become active before it has its configurations. So each has a stand-in (xds.Resource.StandIn). A
// proxy that refused the configuration, or from which it is withheld, receives the stand-in if it has no earlier good
// version. By failStrategy the stand-in refuses requests or lets them pass. Configurations that EnvoyFilters add have
// no stand-in: the author of the EnvoyFilter adds the filter too, and sets its behaviour without a configuration
// (initial_fetch_timeout, default_config).
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

// Way is the way in which a proxy runs an extension.
type Way uint8

// The values of Way.
const (
	ByEnvoy Way = iota // Envoy has the whole extension, or fetches the module itself
	ByAgent            // the proxy's agent fetches the module, and its Envoy reads a file (Istio's pilot-agent)
	Left               // the proxy cannot run it, and traffic passes without the filter (FAIL_OPEN)
	Closed             // the proxy cannot run it, and traffic is refused
)

// Runs reports whether the proxy runs the extension.
func (w Way) Runs() bool { return w == ByEnvoy || w == ByAgent }

// WayOf returns the way in which a proxy with some capabilities runs an extension. The text why names the proxies that
// cannot run it, for Left and Closed. Without an agent that fetches modules, a proxy supports modules in files, and
// modules over HTTP with a stated sha256: Envoy refuses others
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/core/v3/base.proto#config-core-v3-remotedatasource).
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
		why = "proxies whose agent does not fetch modules: their Envoy wants sha256"
	default:
		return ByEnvoy, ""
	}
	if wasm.GetFailStrategy() == extensionsv1.FailStrategy_FAIL_OPEN {
		return Left, why
	}
	return Closed, why
}

// URL returns the URL of a module. Without a scheme it is an image, oci://.
func URL(wasm *extensionsv1.WasmConfig) string {
	if strings.Contains(wasm.GetUrl(), "://") {
		return wasm.GetUrl()
	}
	return "oci://" + wasm.GetUrl()
}

// Registry returns the registry from which a module's image is fetched with a credential (imagePullSecret). It returns
// "" if the module is fetched without a credential, or is not an image.
func Registry(wasm *extensionsv1.WasmConfig) string {
	if wasm.GetImagePullSecret() == "" {
		return ""
	}
	return pullsecret.Registry(URL(wasm))
}

// OnConnections reports whether the extension is a network filter; others are HTTP filters.
func OnConnections(e *model.TrafficExtension) bool {
	return e.Spec.GetWasm().GetType() == extensionsv1.PluginType_NETWORK
}

// PullSecretVariable is the variable of a module's environment with the credentials of registries, in the form of
// Docker's configuration. Istio's agent reads and removes it. If it is empty, a credential is missing, and the agent
// does not fetch the module (istio: pkg/wasm/convert.go).
const PullSecretVariable = "ISTIO_META_WASM_IMAGE_PULL_SECRET"

// Name returns the name of the configuration that Envoy requests: Istio's, with Istio's spelling (istio:
// pilot/pkg/model/extensions.go).
func Name(extension model.Key) string {
	prefix := "extenstions.istio.io/wasmplugin/"
	if extension.Kind == model.KindTrafficExtension {
		prefix = "extensions.istio.io/trafficextension/"
	}
	return prefix + extension.Namespace + "." + extension.Name
}

// Filter is the filter of an extension in the listeners of one side of a proxy. It is comparable.
type Filter struct {
	Extension     model.Key
	Phase         Phase               // position among Istio's filters
	OnConnections bool                // a network filter; else an HTTP filter
	Lua           bool                // false: WebAssembly
	Closed        bool                // the proxy cannot run it, so traffic to its ports is refused
	Ports         intern.List[uint32] // sorted; empty: all ports
}

// Phase is the position of a filter among Istio's own filters.
type Phase = extensionsv1.TrafficExtension_ExecutionPhase

// Side is a direction of traffic, in the values of the match of extensions.
type Side = typev1.WorkloadMode

// The sides.
const (
	Outbound = typev1.WorkloadMode_CLIENT
	Inbound  = typev1.WorkloadMode_SERVER
)

// ports interns the lists of ports.
var ports intern.Table[uint32]

// FilterOf returns the filter of an extension in the listeners of a side. It returns false if the extension has no
// filter there.
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

// On reports whether the filter is for connections to a port. Port 0 means connections whose port is unknown, for which
// only filters of all ports are.
func (f Filter) On(port uint32) bool {
	return f.Ports.Len() == 0 || slices.Contains(f.Ports.All(), port)
}

// Compare orders the extensions of a proxy. The order is by priority, the highest first and those without one last.
// Then it is by place, the comparison of their namespaces, and then by age, the oldest first.
func Compare(a, b *model.TrafficExtension, place int) int {
	return cmp.Or(cmp.Compare(priority(b), priority(a)), place, cmp.Compare(a.Created, b.Created),
		cmp.Compare(a.Key.Name, b.Key.Name), a.Key.Compare(b.Key))
}

// priority returns the priority of an extension. An extension without one comes after all that state one, even 0, as in
// istiod.
func priority(e *model.TrafficExtension) int32 {
	if p := e.Spec.GetPriority(); p != nil {
		return p.GetValue()
	}
	return math.MinInt32
}
