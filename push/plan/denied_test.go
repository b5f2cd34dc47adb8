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

// rulesOf returns the rules of a chain's RBAC filters, network and HTTP, in the order in which Envoy applies them.
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

// An identity that the CA has revoked is denied in each inbound filter chain before any rule allows it, whatever the
// protocol, the port and the mode. This needs no revocation list, and stock agents receive it too.
// Promise: security-ca.md#what-revoking-an-identity-does, security-workloads.md#renewals-and-revocation
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
		seen := deniedFirst(t, mode, listenerOf(t, planFor(s, n), xds.VirtualInbound))
		if seen < chains {
			t.Errorf("%s: %d chains, want %d or more", mode, seen, chains)
		}
		with := s.Apply(2, []model.Record{sidecarOf(t, "b/s", "ingress: [{port: {number: 7000, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:80'}, {port: {number: 7001, protocol: TCP, name: tcp}, defaultEndpoint: '127.0.0.1:81'}]")}, nil).New
		if seen := deniedFirst(t, mode+", ports of a Sidecar", listenerOf(t, planFor(with, n), xds.VirtualInbound)); seen < 2 {
			t.Errorf("%s: %d chains of a Sidecar's ports", mode, seen)
		}
		grpc := app("b", "x", "app=server")
		if seen := deniedFirst(t, mode+", gRPC without a proxy", listenerOf(t, planFor(s, grpc), xds.ServerListener+"0.0.0.0:80")); seen == 0 {
			t.Errorf("%s: no chains of a gRPC server", mode)
		}
	}
}

// deniedFirst checks that each chain of a listener denies the identity before any rule allows it, and returns the
// number of checked chains.
func deniedFirst(t *testing.T, what string, inbound *listenerv3.Listener) (seen int) {
	t.Helper()
	for _, chain := range append(inbound.GetFilterChains(), inbound.GetDefaultFilterChain()) {
		if chain == nil || strings.HasSuffix(chain.GetName(), "blackhole") { // which connects to nothing
			continue
		}
		seen++
		rules, denied := rulesOf(t, chain), false
		for _, r := range rules {
			if r.GetAction() != rbacv3.RBAC_DENY {
				break
			}
			denied = denied || strings.Contains(r.String(), "spiffe://cluster.local/ns/a/sa/bad")
		}
		if len(rules) < 2 || !denied {
			t.Errorf("%s, chain %s (%v): the rules are %v", what, chain.GetName(), chain.GetFilterChainMatch(), rules)
		}
	}
	return seen
}
