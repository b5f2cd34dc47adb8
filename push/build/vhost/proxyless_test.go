package vhost

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"sigs.k8s.io/yaml"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// Proxyless sends the fields of a VirtualService that gRPC's client supports and no others; the others are reported by
// field.
func TestProxylessRoutes(t *testing.T) {
	vs := service(t, `
http:
- match: [{uri: {exact: /a.B/C}, headers: {x: {exact: "1"}}}]
  fault: {abort: {grpcStatus: UNAVAILABLE, percentage: {value: 100}}}
  timeout: 3s
  retries: {attempts: 2, retryOn: "unavailable,connect-failure", perTryTimeout: 1s}
  mirror: {host: m}
  headers: {request: {set: {y: z}}}
  rewrite: {uri: /d}
  route: [{destination: {host: a}, weight: 75}, {destination: {host: b}, weight: 25, headers: {request: {set: {y: z}}}}]
- match: [{queryParams: {q: {exact: "1"}}}]
  route: [{destination: {host: a}}]
- match: [{headers: {"@request.auth.claims.a": {exact: "1"}}}]
  route: [{destination: {host: a}}]
- match: [{uri: {prefix: /r}, method: {exact: POST}, withoutHeaders: {h: {exact: v}, i: {}}}]
  redirect: {uri: /x}
- retries: {attempts: 0}
  route: [{destination: {host: a}}]
`)
	s := Proxyless{Name: "outbound|80||h", Spec: specOf(vs)}
	s.Caps = xds.CapFault
	r, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	got, want := &routev3.RouteConfiguration{}, &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(r.Body(), got); err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSON([]byte(`
name: "outbound|80||h"
virtual_hosts:
- name: ` + got.VirtualHosts[0].Name + `
  domains: ["*"]
  routes:
  - match: {path: /a.B/C, case_sensitive: true, headers: [{name: x, string_match: {exact: "1"}}]}
    route:
      weighted_clusters: {clusters: [{name: "outbound|80||a", weight: 75}, {name: "outbound|80||b", weight: 25}]}
      retry_policy: {retry_on: "unavailable,connect-failure", num_retries: 2}
      max_stream_duration: {max_stream_duration: 3s}
    typed_per_filter_config:
      envoy.filters.http.fault: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, abort: {grpc_status: 14, percentage: {numerator: 1000000, denominator: MILLION}}}
  - match: {prefix: /r, case_sensitive: true, headers: [{name: h, string_match: {exact: v}, invert_match: true, treat_missing_header_as_empty: true}, {name: i, present_match: true, invert_match: true}, {name: ":method", string_match: {exact: POST}}]}
    redirect: {path_redirect: /x}
  - match: {prefix: /}
    route: {cluster: "outbound|80||a"}
`))
	if err == nil {
		err = protojson.Unmarshal(raw, want)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	var fields []string
	for _, p := range ProxylessProblems(vs) {
		fields = append(fields, strings.TrimPrefix(p.Field, "spec."))
	}
	if diff := cmp.Diff([]string{"http[0].rewrite", "http[0].mirror", "http[0].headers", "http[0].retries", "http[1].match[0].queryParams",
		"http[3].redirect", "http[3].match[0].method", "http[3].match[0].withoutHeaders"}, fields); diff != "" {
		t.Error(diff)
	}
}
