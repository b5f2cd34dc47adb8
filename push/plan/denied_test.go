package plan

import (
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// rulesOf are the rules of a chain's RBAC filters, those of HTTP too, in the order in which Envoy applies them.
func rulesOf(t *testing.T, chain *listenerv3.FilterChain) (all []*rbacv3.RBAC) {
	t.Helper()
	open := func(raw []byte, m proto.Message) {
		if err := proto.Unmarshal(raw, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range chain.GetFilters() {
		var network networkrbacv3.RBAC
		var http hcmv3.HttpConnectionManager
		switch config := f.GetTypedConfig(); {
		case config.MessageIs(&network):
			open(config.GetValue(), &network)
			all = append(all, network.GetRules())
		case config.MessageIs(&http):
			open(config.GetValue(), &http)
			for _, f := range http.GetHttpFilters() {
				var rbac httprbacv3.RBAC
				if f.GetTypedConfig().MessageIs(&rbac) {
					open(f.GetTypedConfig().GetValue(), &rbac)
					all = append(all, rbac.GetRules())
				}
			}
		}
	}
	return all
}

// An identity that the CA has revoked is denied in each filter chain by which its proxies could get in, whatever the protocol, the port and the mode, before anything is allowed: that
// takes no revocation list, and stock agents get it too (issue 12, item 4).
func TestRevokedAreDeniedInEachChain(t *testing.T) {
	policies := []model.Record{
		security(t, model.KindAuthorizationPolicy, "istio-system/"+model.DeniedName, "{action: DENY, rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/bad]}}]}]}", &securityv1.AuthorizationPolicy{}),
		security(t, model.KindAuthorizationPolicy, "b/all", "{rules: [{}]}", &securityv1.AuthorizationPolicy{}),
	}
	const service = "{hosts: [server.b.svc.cluster.local], exportTo: ['*'], selector: {app: server}, addresses: [10.96.0.9], ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}, " +
		"{name: tcp, number: 81, protocol: PROTOCOL_TCP}, {name: auto, number: 82}, {name: tls, number: 83, protocol: PROTOCOL_TLS}, {name: grpc, number: 84, protocol: PROTOCOL_GRPC}]}"
	const endpoints = "{hosts: [server.b.svc.cluster.local], ports: [{name: http, number: 80}, {name: tcp, number: 81}, {name: auto, number: 82}, {name: tls, number: 83}, {name: grpc, number: 84}], " +
		"endpoints: [{address: 10.1.9.9, labels: {app: server}, namespace: b, serviceAccount: server, mtls: true}]}"
	for mode, chains := range map[string]int{"STRICT": 8, "PERMISSIVE": 20} {
		s := snapshot(append([]model.Record{rec(t, model.KindService, "b/server", service), rec(t, model.KindEndpoints, "b/server-1", endpoints),
			security(t, model.KindPeerAuthentication, "b/p", "mtls: {mode: "+mode+"}", &securityv1.PeerAuthentication{})}, policies...)...)
		n := node("b", "x", "app=server")
		n.Caps |= xds.CapIdentity
		inbound, seen := listenerOf(t, planFor(s, n), xds.VirtualInbound), 0
		for _, chain := range append(inbound.GetFilterChains(), inbound.GetDefaultFilterChain()) {
			if chain == nil || strings.HasSuffix(chain.GetName(), "blackhole") { // which connects to nothing
				continue
			}
			seen++
			rules := rulesOf(t, chain)
			if len(rules) < 2 || rules[0].GetAction() != rbacv3.RBAC_DENY || !strings.Contains(rules[0].String(), "spiffe://cluster.local/ns/a/sa/bad") {
				t.Errorf("%s, chain %s (%v): the first rules are %v", mode, chain.GetName(), chain.GetFilterChainMatch(), rules)
			}
		}
		if seen < chains {
			t.Errorf("%s: %d chains, want %d or more", mode, seen, chains)
		}
	}
}
