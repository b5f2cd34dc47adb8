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

// A stand-in is the configuration that a proxy receives after it has refused the configuration of a filter (an invalid
// module, Lua that does not compile). Other proxies from which the server withholds the refused configuration receive
// the stand-in too. Without a configuration a proxy would not open its ports, because a listener waits for the
// configuration without limit. The stand-in follows failStrategy: with FAIL_OPEN it passes the traffic that the
// extension matches, otherwise it refuses that traffic
// (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/#FailStrategy). Istio's agent uses the
// same stand-in for a module that it cannot fetch (istio: pkg/wasm/convert.go).

// refusingLua is Lua that answers every request with 503.
const refusingLua = `function envoy_on_request(request) request:respond({[":status"] = "503"}, "") end`

// withStandIn adds the stand-in to the resource r, and returns r. The error is that of xds.Encode.
func (c Config) withStandIn(r *xds.Resource) (*xds.Resource, error) {
	config := &corev3.TypedExtensionConfig{Name: r.Name, TypedConfig: xds.Any(c.standIn())}
	standIn, err := xds.Encode(xds.Extension, r.Name, config)
	if err != nil {
		return nil, err
	}
	return r.With(standIn), nil
}

// standIn returns the stand-in. Its type is one that the listener accepts for the filter.
func (c Config) standIn() proto.Message {
	wasm := c.Extension.Spec.GetWasm()
	if wasm == nil {
		source := &corev3.DataSource_InlineString{InlineString: refusingLua}
		return &luav3.Lua{DefaultSourceCode: &corev3.DataSource{Specifier: source}}
	}
	rules := &rbacv3.RBAC{} // ALLOW without policies refuses everything
	if wasm.GetFailStrategy() == extensionsv1.FailStrategy_FAIL_OPEN {
		rules = nil
	}
	if extension.OnConnections(c.Extension) {
		return &networkrbacv3.RBAC{StatPrefix: "tcp.", Rules: rules}
	}
	return &httprbacv3.RBAC{Rules: rules}
}
