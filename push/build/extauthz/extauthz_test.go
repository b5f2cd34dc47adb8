package extauthz

import (
	"testing"

	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	meshv1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"
)

func unyaml(t testing.TB, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

const providers = `
extensionProviders:
- name: http
  envoyExtAuthzHttp:
    service: ask.test
    port: 80
    timeout: 3s
    pathPrefix: /check
    failOpen: true
    clearRouteCache: true
    statusOnError: "503"
    includeRequestHeadersInCheck: [X-User, "x-a*"]
    includeHeadersInCheck: [not-read]
    includeAdditionalHeadersInCheck: {x-b: "2", x-a: "1"}
    includeRequestBodyInCheck: {maxRequestBytes: 4096, allowPartialMessage: true, packAsBytes: true}
    headersToUpstreamOnAllow: [x-who]
    headersToDownstreamOnDeny: ["*-reason"]
    headersToDownstreamOnAllow: [x-ok]
- name: few
  envoyExtAuthzHttp: {service: ask.test, port: 80, includeHeadersInCheck: [x-old]}
- name: grpc
  envoyExtAuthzGrpc: {service: a/ask.test, port: 9, timeout: 4s, failOpen: true, statusOnError: "504", includeRequestBodyInCheck: {maxRequestBytes: 1}}
- name: prometheus
  prometheus: {}
`

// matchedBy returns the condition on which a request is sent to a provider.
func matchedBy(rbac, provider string) string {
	return "{filter: " + rbac + ", path: [{key: istio_ext_authz_shadow_effective_policy_id}], value: {string_match: {prefix: istio-ext-authz-" + provider + "-}}}"
}

// The setting of the filter for each field of a provider.
func TestProviders(t *testing.T) {
	mesh := &meshv1.MeshConfig{}
	unyaml(t, providers, mesh)
	for name, c := range map[string]struct {
		of   Authorizer
		http string // empty: it cannot be asked
		tcp  string
	}{
		"HTTP, all fields": {Authorizer{Provider: "http", Host: "ask.test"}, `{transport_api_version: V3, failure_mode_allow: true, clear_route_cache: true, status_on_error: {code: ServiceUnavailable},
			with_request_body: {max_request_bytes: 4096, allow_partial_message: true, pack_as_bytes: true}, filter_enabled_metadata: ` + matchedBy("envoy.filters.http.rbac", "http") + `,
			http_service: {path_prefix: /check, server_uri: {uri: 'http://ask.test', cluster: outbound|80||ask.test, timeout: 3s},
			authorization_request: {allowed_headers: {patterns: [{exact: X-User, ignore_case: true}, {prefix: x-a, ignore_case: true}]}, headers_to_add: [{key: x-a, value: '1'}, {key: x-b, value: '2'}]},
			authorization_response: {allowed_upstream_headers: {patterns: [{exact: x-who, ignore_case: true}]}, allowed_client_headers: {patterns: [{suffix: -reason, ignore_case: true}]},
			allowed_client_headers_on_success: {patterns: [{exact: x-ok, ignore_case: true}]}}}}`, ""},
		"HTTP, few fields": {Authorizer{Provider: "few", Host: "ask.test"}, `{transport_api_version: V3, filter_enabled_metadata: ` + matchedBy("envoy.filters.http.rbac", "few") + `,
			http_service: {server_uri: {uri: 'http://ask.test', cluster: outbound|80||ask.test, timeout: 600s}, authorization_request: {allowed_headers: {patterns: [{exact: x-old, ignore_case: true}]}}}}`, ""},
		"gRPC": {Authorizer{Provider: "grpc", Host: "ask.test"}, `{transport_api_version: V3, failure_mode_allow: true, status_on_error: {code: GatewayTimeout}, with_request_body: {max_request_bytes: 1},
			filter_enabled_metadata: ` + matchedBy("envoy.filters.http.rbac", "grpc") + `,
			grpc_service: {timeout: 4s, envoy_grpc: {cluster_name: outbound|9||ask.test, authority: outbound_.9_._.ask.test}}}`,
			`{stat_prefix: tcp., transport_api_version: V3, failure_mode_allow: true, filter_enabled_metadata: ` + matchedBy("envoy.filters.network.rbac", "grpc") + `,
			grpc_service: {timeout: 4s, envoy_grpc: {cluster_name: outbound|9||ask.test, authority: outbound_.9_._.ask.test}}}`},
		"one that was not found": {Authorizer{Provider: "grpc", Wrong: "there is no service"}, "", ""},
		"no provider":            {Authorizer{Provider: "none"}, "", ""},
		"of another kind":        {Authorizer{Provider: "prometheus"}, "", ""},
	} {
		http, tcp := HTTP(mesh, c.of), Network(mesh, c.of)
		if (http != nil) != (c.http != "") || (tcp != nil) != (c.tcp != "") {
			t.Errorf("%s: %v, %v", name, http, tcp)
			continue
		}
		if http != nil {
			want := &httpv3.ExtAuthz{}
			unyaml(t, c.http, want)
			if diff := cmp.Diff(want, http, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
			if err := http.ValidateAll(); err != nil {
				t.Error(name, err)
			}
		}
		if tcp != nil {
			want := &networkv3.ExtAuthz{}
			unyaml(t, c.tcp, want)
			if diff := cmp.Diff(want, tcp, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
			if err := tcp.ValidateAll(); err != nil {
				t.Error(name, err)
			}
		}
	}
	for name, want := range map[string]bool{"http": true, "grpc": true, "prometheus": false, "none": false} {
		if service, port, ok := Service(mesh, name); ok != want || ok && (service == "" || port == 0) {
			t.Errorf("%s: %q, %d, %v", name, service, port, ok)
		}
	}
}
