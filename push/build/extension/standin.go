package extension

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
)

// A listener waits for the configuration of a filter for ever. So a proxy that refuses a configuration (a module that is none, Lua that does not compile) and has no earlier one would not listen at all,
// at none of its ports, and nor would proxies from which it is withheld. They are sent something in its place that does what failStrategy says: where it is FAIL_OPEN what the extension matches passes, else it is
// refused (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/#FailStrategy). It is what Istio's agent, too, gives its Envoy in the place of a module that it cannot fetch
// (istio: pkg/wasm/convert.go).

// closing is Lua that answers what would have passed.
const closing = `function envoy_on_request(request) request:respond({[":status"] = "503"}, "") end`

// stoodInFor is a configuration with what stands in for it.
func (c Config) stoodInFor(r *xds.Resource) (*xds.Resource, error) {
	standIn, err := xds.Encode(xds.Extension, r.Name, &corev3.TypedExtensionConfig{Name: r.Name, TypedConfig: xds.Any(c.standIn())})
	if err != nil {
		return nil, err
	}
	return r.With(standIn), nil
}

// standIn is of a type that the listener takes for the filter.
func (c Config) standIn() proto.Message {
	wasm := c.Extension.Spec.GetWasm()
	if wasm == nil {
		return &luav3.Lua{DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: closing}}}
	}
	rules := &rbacv3.RBAC{} // it allows what its policies match, and has none
	if wasm.GetFailStrategy() == extensionsv1.FailStrategy_FAIL_OPEN {
		rules = nil
	}
	if extension.OnConnections(c.Extension) {
		return &networkrbacv3.RBAC{StatPrefix: "tcp.", Rules: rules}
	}
	return &httprbacv3.RBAC{Rules: rules}
}
