package view

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// withProxyConfig parses a node with this ProxyConfig in its metadata; with an empty text, without one.
func withProxyConfig(t *testing.T, text string) (Node, error) {
	t.Helper()
	if text != "" {
		text = `, "PROXY_CONFIG": ` + text
	}
	n := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(`{"id": "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", "metadata": {"ISTIO_VERSION": "1.31.0"`+text+`}}`), n); err != nil {
		t.Fatal(err)
	}
	return Parse(message(n), "")
}

// A proxy's own ProxyConfig replaces the mesh's defaultConfig; of its connection settings each is replaced separately.
// If the result equals the mesh's, the view equals the view without a ProxyConfig. Other fields of ProxyConfig do not
// change the view.
func TestProxyConfigInViews(t *testing.T) {
	const headers, connections = `"proxyHeaders": {"server": {"value": "a"}, "attemptCount": {"disabled": true}, "preserveHttp1HeaderCase": true}`, `"connectionSettings": {"httpIdleTimeout": "9s"}`
	s := snapshot(rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, enableTracing: true, defaultConfig: {"+headers+", "+connections+", tracing: {sampling: 7}}}"))
	of := func(text string) View {
		n, err := withProxyConfig(t, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return Of(s, n)
	}
	mesh := of("")
	if !mesh.Scope.Routes.NoAttempts || !mesh.Scope.HeaderCase || !mesh.Workload.HeaderCase || mesh.Inputs.Listeners.Stated || !mesh.Inputs.Self.Sends ||
		mesh.Inputs.Self.Tracing.Stated || mesh.Scope.Caps.Has(xds.CapHeaderCase) {
		t.Errorf("by the mesh: %+v", mesh)
	}
	for text, same := range map[string]bool{
		"null": true, "{}": false, `{"tracing": null, "concurrency": 3}`: false,
		"{" + headers + `, "tracing": {"sampling": 7, "zipkin": {"address": "z:9411"}}, "concurrency": 3}`: true,
		"{" + headers + `, "tracing": {"sampling": 8}}`:                                                    false,
		"{" + headers + `, "tracing": {"sampling": 7}, "connectionSettings": {}}`:                          false,
		"{" + headers + `, "tracing": {"sampling": 7}, ` + connections + "}":                               true,
		"{" + headers + `, "tracing": {"sampling": 7}, "gatewayTopology": {"proxyProtocol": {}}}`:          true,
	} {
		if got := of(text); (got == mesh) != same {
			t.Errorf("%s: the view of those who say nothing: %v, want %v", text, got == mesh, same)
		}
	}
	if got := of(`{"concurrency": 3}`); got.Scope.Routes != (proxyconfig.Routes{}) || got.Scope.HeaderCase || got.Inputs.Self.Sends ||
		got.Inputs.Listeners.Is.Headers != "" || got.Inputs.Listeners.Is.Connections.Config().GetConnectionSettings().GetHttpIdleTimeout().GetSeconds() != 9 {
		t.Errorf("one that says nothing of headers: %+v", got)
	}
	first, second := of(`{"proxyHeaders": {"server": {"value": "b"}}}`), of(`{"proxy_headers": {"server": {"value": "b"}}}`)
	if first != second || first.Workload.Listeners != first.Inputs.Listeners {
		t.Errorf("proxies that say the same: %+v, %+v", first, second)
	}
	plain, _ := withProxyConfig(t, "")
	if plain.Caps = 0; Of(s, plain).Scope.HeaderCase {
		t.Error("a proxy without the formatter is sent it")
	}
	plain.Kind = Proxyless
	if got := Of(s, plain); got.Inputs != (Inputs{}) || got.Scope.Routes != (proxyconfig.Routes{}) {
		t.Errorf("an application without a proxy: %+v", got)
	}
}

// The stored part of a ProxyConfig is bounded, and equal ones of several nodes are stored once.
func TestProxyConfigOfNodes(t *testing.T) {
	tags := func(n int) string {
		return `{"tracing": {"customTags": {"a": {"literal": {"value": "` + strings.Repeat("x", n) + `"}}}}}`
	}
	for text, want := range map[string]string{
		`"text"`: "want an object, got a string", `{"proxyHeaders": 3}`: "want a ProxyConfig", `{"connectionSettings": {"httpIdleTimeout": "soon"}}`: "want a ProxyConfig",
		`{"connectionSettings": {"httpIdleTimeout": "` + strings.Repeat("x", longestProxyConfig/2) + `"}}`: "want a ProxyConfig",
		tags(longestProxyConfig):     "bytes of headers, connections, topology and spans; 16384 at most",
		tags(longestProxyConfig / 2): "", `{"proxyMetadata": {"A": "` + strings.Repeat("x", longestProxyConfig) + `"}}`: "",
		`{"proxyHeaders": {"ofLater": 1}}`: "",
	} {
		_, err := withProxyConfig(t, text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "node.metadata.PROXY_CONFIG")) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%.80s: an error of %d bytes", text, len(err.Error()))
		}
	}
	first, _ := withProxyConfig(t, tags(3))
	if second, _ := withProxyConfig(t, tags(3)); first.ProxyConfig == nil || first.ProxyConfig != second.ProxyConfig {
		t.Errorf("two nodes that say the same: %p, %p", first.ProxyConfig, second.ProxyConfig)
	}
	for i := range 3 * stated.most {
		if _, err := withProxyConfig(t, fmt.Sprintf(`{"tracing": {"sampling": %d}}`, i%100)); err != nil || len(stated.known) > stated.most {
			t.Fatal(len(stated.known), err)
		}
	}
	if n, _ := withProxyConfig(t, ""); n.ProxyConfig != nil {
		t.Error("a node that sends none has one")
	}
	if typ := reflect.TypeFor[proxyconfig.Settings](); !typ.Comparable() {
		t.Error(typ)
	}
}
