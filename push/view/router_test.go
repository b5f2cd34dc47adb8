package view

import (
	"testing"

	"navarch.io/navarch/store/model"
)

func router() Node {
	n := web()
	n.Kind = Router
	return n
}

// Settings of the control plane for routers are part of their scopes. With OwnNamespace a Gateway of another namespace
// does not count.
func TestRouterSettings(t *testing.T) {
	s := snapshot(rec(t, model.KindGateway, "shop/own", "{selector: {app: web}}"),
		rec(t, model.KindGateway, "other/far", "{selector: {app: web}}"),
		rec(t, model.KindGateway, "shop/others", "{selector: {app: api}}"))
	for _, c := range []struct {
		settings RouterSettings
		gateways int
	}{
		{RouterSettings{}, 2}, {RouterSettings{OwnNamespace: true}, 1}, {RouterSettings{QUIC: true}, 2}, {RouterSettings{Routed: true}, 2},
		{RouterSettings{Local: true}, 2},
	} {
		n := router()
		n.Routers = c.settings
		scope := Of(s, n).Scope
		edge := scope.Edge.Value()
		if scope.Gateways.Len() != c.gateways || edge.QUIC != c.settings.QUIC || edge.Routed != c.settings.Routed {
			t.Errorf("%+v: Gateways %v, edge %+v", c.settings, scope.Gateways.All(), edge)
		}
		plain := Of(s, router()).Scope
		same := plain == scope
		if same != (c.settings == RouterSettings{}) || (plain.String() == scope.String()) != same {
			t.Errorf("%+v: the scope is named %s", c.settings, scope)
		}
	}
}

// A proxy whose requested view of networks is its own network has no endpoints of others.
func TestRequestedNetworkView(t *testing.T) {
	s := snapshot(rec(t, model.KindNetworkGateways, "istio-system/east", "{gateways: [{network: n2, address: 192.0.2.1, port: 15443}]}"))
	for _, c := range []struct {
		network, view string
		alone         bool
	}{{"n1", "n1", true}, {"n1", "", false}, {"n1", "n2", false}, {"", "", false}} {
		n := router()
		n.Network, n.Metadata = c.network, map[string]string{"REQUESTED_NETWORK_VIEW": c.view}
		in := Of(s, n).Inputs
		if in.Alone != c.alone || (Reads{Network: true}).Of(in).Alone != c.alone || (Reads{}).Of(in).Alone {
			t.Errorf("network %q, view %q: %+v", c.network, c.view, in)
		}
	}
}
