package object

import "testing"

func TestIDs(t *testing.T) {
	for want, id := range map[string]ID{
		"Gateway a/b":                                        {Group: "networking.istio.io", Kind: "Gateway", Namespace: "a", Name: "b"},
		"Gateway.gateway.networking.k8s.io a/b":              {Group: GatewayAPI, Kind: "Gateway", Namespace: "a", Name: "b"},
		"GatewayClass.gateway.networking.k8s.io b":           {Group: GatewayAPI, Kind: "GatewayClass", Name: "b"},
		"HTTPRoute.gateway.networking.k8s.io in namespace a": {Group: GatewayAPI, Kind: "HTTPRoute", Namespace: "a"},
		"Pod": {Kind: "Pod"},
		"":    {},
	} {
		if got := id.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
