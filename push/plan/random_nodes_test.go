package plan

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// nodes returns proxies that differ in each property that a view may read.
func nodes() []view.Node {
	all := []view.Node{
		node("a", "s0-1", "app=s0", "version=v1", "tier=x"),
		node("a", "s0-2", "app=s0", "version=v2"),
		node("a", "s1-1", "app=s1"),
		node("b", "s0-1", "app=s0", "version=v1"),
		node("istio-system", "ops", "tier=x"),
		node("b", "free", "app=s1"),
	}
	for i := range all[:4] {
		all[i].Caps |= xds.CapIdentity
		all[i].Service = all[i].Name + ".spans"
	}
	for _, of := range []string{"a", "b", ""} {
		gateway := node("a", "gw-"+of, "app=gw")
		if gateway.Kind = view.Router; of != "" {
			gateway.Verified = view.Identity{Namespace: of, Account: "sa"}
		}
		all = append(all, gateway)
	}
	all[6].Labels[model.GatewayName] = "front"
	for _, one := range []view.Node{all[0], all[6]} { // their counterparts in another cluster
		one.Name, one.Cluster = "west-"+one.Name, west.Cluster()
		all = append(all, one)
	}
	bound := all[6]
	bound.Name, bound.Pod = "gw-bound", "w0"
	bound.Network, bound.Metadata = "n1", map[string]string{"REQUESTED_NETWORK_VIEW": "n1"}
	all[7].Routers, all[8].Routers = view.RouterSettings{OwnNamespace: true, QUIC: true}, view.RouterSettings{Routed: true}
	all = append(all, bound)
	all[0].Addresses = []string{"10.1.0.1"}
	all[0].Locality, all[1].Locality, all[2].Locality = "r1/z1", "r2/z1", "r1/z1"
	all[5].Mode = view.None
	all[0].Network, all[1].Network, all[3].Network = "n1", "n2", "n2"
	return all
}

// resolvers returns proxies whose agents answer DNS queries, and which therefore receive automatic addresses.
func resolvers() (all []view.Node) {
	for _, at := range [][2]string{{"a", "10.1.0.9"}, {"b", "10.1.0.8"}, {"b", "fd00::8"}} {
		one := node(at[0], "dns-"+at[1], "app=s0")
		one.Addresses, one.Metadata = []string{at[1]}, map[string]string{"DNS_CAPTURE": "true"}
		all = append(all, one)
	}
	all[1].Metadata["DNS_PROXY_ADDR"] = "127.0.0.1:5353"
	return all
}

// zoned returns proxies that need the cluster of their own workload. They have no workload name, like the random
// endpoints.
func zoned() []view.Node {
	all := []view.Node{node("a", "zoned-0", "app=s0", "version=v1"), node("a", "zoned-1", "app=s0", "version=v2"), node("b", "zoned-2", "app=s0")}
	for i, locality := range []string{"r1/z1", "r1/z2", "r2/z1"} {
		all[i].Workload, all[i].Locality, all[i].Caps = "", locality, all[i].Caps|xds.CapIdentity|xds.CapSelfDiscovery
	}
	return all
}

// apps returns applications with gRPC's own xDS client that differ in each property that a view may read.
func apps() []view.Node {
	all := []view.Node{
		node("a", "app-0", "app=s0", "version=v1", "tier=x", "security.istio.io/tlsMode=istio"),
		node("b", "app-1", "app=s1"),
		node("a", "app-2", "app=s0", "version=v2"),
	}
	for i := range all {
		all[i].Kind, all[i].Mode, all[i].Caps = view.Proxyless, view.None, 0
	}
	all[0].Caps, all[1].Caps = xds.CapIdentity, xds.CapIdentity
	all[0].Locality = "r1/z1"
	return all
}

// fetchers returns proxies whose agents download modules: of two namespaces, one without a credential, one bound to a
// Pod, and one whose node has labels that its Pods lack.
func fetchers() []view.Node {
	all := []view.Node{node("a", "fetch-0", "app=s0", "version=v1"), node("b", "fetch-1", "app=s0"), node("a", "fetch-2", "app=s0"), node("a", "fetch-3", "app=s0", "version=v1"), node("b", "fetch-4")}
	for i := range all {
		all[i].Caps |= xds.CapWasmHTTP | xds.CapWasmNetwork | xds.CapWasmFetch
		all[i].Verified = view.Identity{Namespace: all[i].Namespace, Account: "sa"}
	}
	all[2].Verified, all[3].Pod, all[4].Verified.Account = view.Identity{}, "w0", "other"
	return all
}

// settings parses the text of a ProxyConfig.
func settings(t testing.TB, text string) *proxyconfig.Settings {
	t.Helper()
	c := &meshv1.ProxyConfig{}
	if err := protojson.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	s, faults := proxyconfig.Of(c)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return &s
}

// configured returns proxies with a ProxyConfig of their own.
func configured(t testing.TB) []view.Node {
	all := []view.Node{node("a", "own-0", "app=s0", "version=v1"), node("a", "own-1", "app=s1"), node("b", "own-2", "app=s0", "version=v2"), node("a", "own-3", "app=s0", "version=v1")}
	for i, text := range []string{
		`{"proxyHeaders": {"server": {"value": "own"}, "attemptCount": {"disabled": true}}, "tracing": {"sampling": 3}}`,
		`{"proxyHeaders": {"preserveHttp1HeaderCase": true}, "connectionSettings": {"httpIdleTimeout": "9s"}}`,
		`{}`,
		`{"proxyHeaders": {"server": {"value": "own"}}}`,
	} {
		all[i].ProxyConfig = settings(t, text)
		all[i].Caps |= xds.CapIdentity
	}
	all[0].Locality = "r1/z1"
	return all
}

// bootstrapped returns a sidecar and a gateway whose agents request patches of their bootstrap.
func bootstrapped() []view.Node {
	all := []view.Node{node("a", "boot-0", "app=s0"), node("a", "boot-1", "app=gw")}
	for i := range all {
		all[i].Metadata = map[string]string{"NAVARCH_BOOTSTRAP": "xds"}
	}
	all[1].Kind = view.Router
	return all
}

// defaultConfig returns a field of the mesh configuration: the given settings, and sometimes headers and connections
// for proxies without a ProxyConfig of their own.
func (m *mesh) defaultConfig(given string) string {
	if m.proxies != nil {
		pick := func(from ...string) string { return from[m.proxies.IntN(len(from))] }
		given += pick("", "", "proxyHeaders: {server: {value: own}}, ", "proxyHeaders: {attemptCount: {disabled: true}, xForwardedHost: {enabled: true}}, ",
			"proxyHeaders: {preserveHttp1HeaderCase: true}, ") + pick("", "connectionSettings: {httpIdleTimeout: 8s}")
	}
	if given == "" {
		return ""
	}
	return ", defaultConfig: {" + given + "}"
}

// automatic sometimes returns an automatic address for each host; two ServiceEntries may state the same address.
func (m *mesh) automatic(hosts []string) string {
	if !m.auto || m.clock%3 > 0 {
		return ""
	}
	var b strings.Builder
	for i, h := range hosts {
		if strings.HasPrefix(h, "*") {
			continue
		}
		fmt.Fprintf(&b, "- {host: %s, addresses: [240.240.0.%d, '2001:2::%d']}\n", h, 1+(m.clock/3+int64(i))%3, 1+m.clock%2)
	}
	if b.Len() == 0 {
		return ""
	}
	return "automatic:\n" + b.String()
}
