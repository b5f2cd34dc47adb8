// Package extension decides the effect of WasmPlugins and TrafficExtensions on one proxy: how it runs each, and which filters it has for them
// in its listeners (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/).
//
// Owns: nothing; the functions are pure.  Reads: records it is given.  Never: the snapshot, Envoy's protobuf.
//
// # Filters that Envoy discovers
//
// A listener may name a filter whose configuration Envoy fetches separately (ECDS, xds.Extension). WasmPlugins,
// TrafficExtensions and EnvoyFilters with applyTo EXTENSION_CONFIG become such filters.
//
// The configurations belong to the workload layer of a view, for outbound listeners too. They split no scope, and an
// edit of one sends that configuration and no listener. The filters themselves are properties of the view. On the
// inbound side these are view.Workload.Extensions; on the outbound side view.Inputs.Extensions, which makes variants
// of listeners and of nothing else.
//
// Where a proxy cannot run an extension, the filter is left out, or the matched traffic is refused
// (listener.Common.Extensions). A metric counts these cases by workload.
//
// push/delta never removes a configuration from a proxy, because a listener may still name its filter. Clusters that
// the configuration names stay as long as the proxy subscribes to it.
//
// A listener does not become active before it has its configurations. So each has a stand-in (xds.Resource.StandIn). A
// proxy that refused the configuration, or from which it is withheld, receives the stand-in if it has no earlier good
// version. The stand-in refuses requests or lets them pass, as failStrategy says. Configurations that EnvoyFilters add
// have no stand-in: the author of the EnvoyFilter adds the filter too, and sets its behaviour without a configuration
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

// Way is how a proxy runs an extension.
type Way uint8

// The ways.
const (
	ByEnvoy Way = iota // Envoy has all that it needs, or fetches the module itself
	ByAgent            // the proxy's agent fetches the module, and gives its Envoy a file (Istio's pilot-agent)
	Left               // it cannot, and its traffic passes without (FAIL_OPEN)
	Closed             // it cannot, and its traffic does not pass
)

// Runs says whether the proxy runs the extension at all.
func (w Way) Runs() bool { return w == ByEnvoy || w == ByAgent }

// WayOf says how a proxy with these capabilities runs an extension; why is for one that cannot. A proxy without an agent that fetches modules takes
// files, and modules by HTTP whose sum is stated: Envoy refuses others
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

// URL is where a module is: an image, where no scheme is stated.
func URL(wasm *extensionsv1.WasmConfig) string {
	if strings.Contains(wasm.GetUrl(), "://") {
		return wasm.GetUrl()
	}
	return "oci://" + wasm.GetUrl()
}

// Registry is the registry that a module is fetched from with a credential (imagePullSecret); empty: it is fetched without, or is no image.
func Registry(wasm *extensionsv1.WasmConfig) string {
	if wasm.GetImagePullSecret() == "" {
		return ""
	}
	return pullsecret.Registry(URL(wasm))
}

// OnConnections says whether the extension is a network filter; else it is an HTTP filter.
func OnConnections(e *model.TrafficExtension) bool {
	return e.Spec.GetWasm().GetType() == extensionsv1.PluginType_NETWORK
}

// PullSecretVariable is the variable of a module's environment in which Istio's agent finds credentials of registries, as Docker's configuration has them, and
// which it takes out again. Empty: there should be some and are not, and the agent does not fetch the module (istio pkg/wasm/convert.go).
const PullSecretVariable = "ISTIO_META_WASM_IMAGE_PULL_SECRET"

// Name is the name of the configuration that Envoy asks for: Istio's, with its spelling
// (istio pilot/pkg/model/extensions.go).
func Name(extension model.Key) string {
	prefix := "extenstions.istio.io/wasmplugin/"
	if extension.Kind == model.KindTrafficExtension {
		prefix = "extensions.istio.io/trafficextension/"
	}
	return prefix + extension.Namespace + "." + extension.Name
}

// Filter is what an extension is in the listeners of one side of a proxy. Comparable.
type Filter struct {
	Extension     model.Key
	Phase         Phase
	OnConnections bool                // a network filter; else an HTTP filter
	Lua           bool                // else WebAssembly
	Closed        bool                // the proxy cannot run it: nothing passes
	Ports         intern.List[uint32] // sorted; empty: all
}

// Phase is where a filter stands.
type Phase = extensionsv1.TrafficExtension_ExecutionPhase

// Side is a direction of traffic, as the match of extensions has it.
type Side = typev1.WorkloadMode

// The sides.
const (
	Outbound = typev1.WorkloadMode_CLIENT
	Inbound  = typev1.WorkloadMode_SERVER
)

var ports intern.Table[uint32]

// FilterOf is an extension in the listeners of a side; false: it is in none.
func FilterOf(e *model.TrafficExtension, way Way, side Side) (Filter, bool) {
	if way == Left {
		return Filter{}, false
	}
	f := Filter{Extension: e.Key, Phase: e.Spec.GetPhase(), OnConnections: OnConnections(e), Lua: e.Spec.GetLua() != nil, Closed: way == Closed}
	var some []uint32
	matches, all := len(e.Spec.GetMatch()) == 0, len(e.Spec.GetMatch()) == 0
	for _, m := range e.Spec.GetMatch() {
		if mode := m.GetMode(); mode != side && mode != typev1.WorkloadMode_UNDEFINED && mode != typev1.WorkloadMode_CLIENT_AND_SERVER {
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

// Name is the name of its configuration.
func (f Filter) Name() string { return Name(f.Extension) }

// String is the extension's key, for users.
func (f Filter) String() string { return f.Extension.String() }

// On says whether the filter is for connections to a port; port 0 is that of connections whose port is not known.
func (f Filter) On(port uint32) bool {
	return f.Ports.Len() == 0 || slices.Contains(f.Ports.All(), port)
}

// Compare orders the extensions of a proxy: the higher priority first, none at all last; then by place, which orders their namespaces; then the
// oldest.
func Compare(a, b *model.TrafficExtension, place int) int {
	return cmp.Or(cmp.Compare(priority(b), priority(a)), place, cmp.Compare(a.Created, b.Created), cmp.Compare(a.Key.Name, b.Key.Name), a.Key.Compare(b.Key))
}

// priority is as istiod has it: one that states none stands behind all that state one, 0 too.
func priority(e *model.TrafficExtension) int32 {
	if p := e.Spec.GetPriority(); p != nil {
		return p.GetValue()
	}
	return math.MinInt32
}
