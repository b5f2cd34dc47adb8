package vhost

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

const (
	previousHosts = `[{name: envoy.retry_host_predicates.previous_hosts, typedConfig: {"@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}}]`
	defaultRetry  = `retryPolicy: {numRetries: 2, hostSelectionRetryMaxAttempts: 5, retryOn: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", retryHostPredicate: ` + previousHosts + `}`
	toA           = `cluster: outbound|80||a, timeout: 0s, maxGrpcTimeout: 0s, ` + defaultRetry
	// noRetries switches retries off, which keeps the other cases short.
	noRetries = `retries: {attempts: 0}`
	plainA    = `cluster: outbound|80||a, timeout: 0s, maxGrpcTimeout: 0s`
	routeA    = `route: [{destination: {host: a}}], ` + noRetries
)

// actions has a rule in each case, with the expected route.
var actions = []struct{ name, rule, want string }{
	{"one destination", `route: [{destination: {host: a}}]`, `route: {` + toA + `}`},
	{"subset and port", `route: [{destination: {host: a, subset: v1, port: {number: 90}}}], ` + noRetries,
		`route: {cluster: outbound|90|v1|a, timeout: 0s, maxGrpcTimeout: 0s}`},
	{"nowhere", `route: [{destination: {host: nowhere}}], ` + noRetries, `route: {cluster: BlackHoleCluster, timeout: 0s, maxGrpcTimeout: 0s}`},
	{"weights of any sum", `route: [{destination: {host: a}, weight: 1}, {destination: {host: b}, weight: 0}, {destination: {host: nowhere}, weight: 8}], ` + noRetries,
		`route: {weightedClusters: {clusters: [{name: outbound|80||a, weight: 1}, {name: BlackHoleCluster, weight: 8}]}, timeout: 0s, maxGrpcTimeout: 0s}`},
	{"timeout", `timeout: 1.5s, ` + routeA, `route: {cluster: outbound|80||a, timeout: 1.5s, maxGrpcTimeout: 1.5s}`},
	{"retries", `retries: {attempts: 3, perTryTimeout: 2s, retryOn: "503, reset ,gateway-error", backoff: 0.1s}, route: [{destination: {host: a}}]`,
		`route: {` + plainA + `, retryPolicy: {numRetries: 3, perTryTimeout: 2s, retryOn: "reset,gateway-error,retriable-status-codes", retriableStatusCodes: [503], hostSelectionRetryMaxAttempts: 5, retryBackOff: {baseInterval: 0.1s}, retryHostPredicate: ` + previousHosts + `}}`},
	{"retries elsewhere", `retries: {attempts: 1, retryOn: reset, retryRemoteLocalities: true, retryIgnorePreviousHosts: false}, route: [{destination: {host: a}}]`,
		`route: {` + plainA + `, retryPolicy: {numRetries: 1, retryOn: reset, hostSelectionRetryMaxAttempts: 5, retryPriority: {name: envoy.retry_priorities.previous_priorities, typedConfig: {"@type": type.googleapis.com/envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig, updateFrequency: 2}}}}`},
	{"rewrite", `rewrite: {uri: /new, authority: other}, ` + routeA, `route: {` + plainA + `, prefixRewrite: /new, hostRewriteLiteral: other}`},
	{"regex rewrite", `rewrite: {uriRegexRewrite: {match: "/(.*)", rewrite: "/x/\\1"}}, ` + routeA,
		`route: {` + plainA + `, regexRewrite: {pattern: {regex: "/(.*)"}, substitution: "/x/\\1"}}`},
	{"headers", `headers: {request: {set: {b: "2", a: "1", host: new.host}, add: {c: "3"}, remove: [d, ":path", Te]}, response: {set: {e: "5", Content-Length: "3"}, add: {f: "6", connection: close}, remove: [g, keep-alive]}}, ` + routeA,
		`requestHeadersToAdd: [` + set("a", "1") + `, ` + set("b", "2") + `, ` + add("c", "3") + `], requestHeadersToRemove: [d],
		 responseHeadersToAdd: [` + set("e", "5") + `, ` + add("f", "6") + `], responseHeadersToRemove: [g], route: {` + plainA + `, hostRewriteLiteral: new.host}`},
	{"headers of the destination come after those of the rule", `headers: {request: {add: {a: "1"}}}, route: [{destination: {host: a}, headers: {request: {add: {b: "2"}, set: {Host: h}}, response: {remove: [x]}}}], ` + noRetries,
		`requestHeadersToAdd: [` + add("a", "1") + `, ` + add("b", "2") + `], responseHeadersToRemove: [x], route: {` + plainA + `, hostRewriteLiteral: h}`},
	{"the rule's authority wins", `rewrite: {authority: r}, headers: {request: {set: {host: q}}}, route: [{destination: {host: a}, headers: {request: {set: {host: d}}}}], ` + noRetries,
		`route: {` + plainA + `, hostRewriteLiteral: r}`},
	{"headers of weighted destinations", `route: [{destination: {host: a}, weight: 1, headers: {request: {set: {x: "1", ":authority": h}}, response: {remove: [z]}}}, {destination: {host: b}, weight: 1}], ` + noRetries,
		`route: {weightedClusters: {clusters: [{name: outbound|80||a, weight: 1, hostRewriteLiteral: h, requestHeadersToAdd: [` + set("x", "1") + `], responseHeadersToRemove: [z]}, {name: outbound|80||b, weight: 1}]}, timeout: 0s, maxGrpcTimeout: 0s}`},
	{"redirect", `redirect: {uri: /new, authority: other, redirectCode: 302, scheme: https, port: 8443}`,
		`redirect: {pathRedirect: /new, hostRedirect: other, responseCode: FOUND, schemeRedirect: https, portRedirect: 8443}`},
	{"redirect of a prefix", `match: [{uri: {prefix: /a}}], redirect: {prefixRewrite: /b, redirectCode: 308}`, `redirect: {prefixRewrite: /b, responseCode: PERMANENT_REDIRECT}`},
	{"redirect to the request's port", `redirect: {authority: o, derivePort: FROM_REQUEST_PORT, scheme: https}`, `redirect: {hostRedirect: o, pathRedirect: "", portRedirect: 80, schemeRedirect: https}`},
	{"redirect leaves out default ports", `redirect: {authority: o, derivePort: FROM_REQUEST_PORT}`, `redirect: {hostRedirect: o, pathRedirect: ""}`},
	{"redirect to the protocol's port", `redirect: {authority: o, derivePort: FROM_PROTOCOL_DEFAULT, redirectCode: 307}`, `redirect: {hostRedirect: o, pathRedirect: "", responseCode: TEMPORARY_REDIRECT}`},
	{"direct response", `directResponse: {status: 503, body: {string: sorry}}, headers: {response: {set: {a: b}}}`,
		`directResponse: {status: 503, body: {inlineString: sorry}}, responseHeadersToAdd: [` + set("a", "b") + `]`},
	{"direct response of bytes", `directResponse: {status: 200, body: {bytes: AAEC}}`, `directResponse: {status: 200, body: {inlineBytes: AAEC}}`},
	{"fault", `fault: {delay: {fixedDelay: 5s, percentage: {value: 0.1}}, abort: {httpStatus: 418, percentage: {value: 12.5}}}, ` + routeA,
		`route: {` + plainA + `}, typedPerFilterConfig: {envoy.filters.http.fault: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, delay: {fixedDelay: 5s, percentage: {numerator: 1000, denominator: MILLION}}, abort: {httpStatus: 418, percentage: {numerator: 125000, denominator: MILLION}}}}`},
	{"fault of gRPC", `fault: {abort: {grpcStatus: UNAVAILABLE, percentage: {value: 100}}}, ` + routeA,
		`route: {` + plainA + `}, typedPerFilterConfig: {envoy.filters.http.fault: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, abort: {grpcStatus: 14, percentage: {numerator: 1000000, denominator: MILLION}}}}`},
	{"fault without percentage hits nobody", `fault: {delay: {fixedDelay: 1s}}, ` + routeA,
		`route: {` + plainA + `}, typedPerFilterConfig: {envoy.filters.http.fault: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, delay: {fixedDelay: 1s, percentage: {}}}}`},
	{"mirrors", `mirror: {host: m}, mirrorPercentage: {value: 50}, mirrors: [{destination: {host: q}}, {destination: {host: nowhere}}, {destination: {host: o}, percentage: {value: 0}}], ` + routeA,
		`route: {` + plainA + `, requestMirrorPolicies: [
		 {cluster: outbound|80||m, traceSampled: false, disableShadowHostSuffixAppend: true, runtimeFraction: {defaultValue: {numerator: 500000, denominator: MILLION}}},
		 {cluster: outbound|80||q, traceSampled: false, disableShadowHostSuffixAppend: true, runtimeFraction: {defaultValue: {numerator: 100}}}]}`},
	{"mirror in the old words", `mirror: {host: m}, mirrorPercent: 5, ` + routeA,
		`route: {` + plainA + `, requestMirrorPolicies: [{cluster: outbound|80||m, traceSampled: false, disableShadowHostSuffixAppend: true, runtimeFraction: {defaultValue: {numerator: 5}}}]}`},
	{"cors", `corsPolicy: {allowOrigins: [{exact: "https://a"}, {prefix: "http://"}, {regex: ".*b"}], allowMethods: [GET, PUT], allowHeaders: [x, z], exposeHeaders: [q], maxAge: 86400s, allowCredentials: true, unmatchedPreflights: IGNORE}, ` + routeA,
		`route: {` + plainA + `}, typedPerFilterConfig: {envoy.filters.http.cors: {"@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy, allowOriginStringMatch: [{exact: "https://a"}, {prefix: "http://"}, {safeRegex: {regex: ".*b"}}], allowMethods: "GET,PUT", allowHeaders: "x,z", exposeHeaders: q, maxAge: "86400", allowCredentials: true, forwardNotMatchingPreflights: false, filterEnabled: {defaultValue: {numerator: 100}}}}`},
	{"cors in the old words", `corsPolicy: {allowOrigin: ["*"]}, ` + routeA,
		`route: {` + plainA + `}, typedPerFilterConfig: {envoy.filters.http.cors: {"@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy, allowOriginStringMatch: [{exact: "*"}], forwardNotMatchingPreflights: true, filterEnabled: {defaultValue: {numerator: 100}}}}`},
}

// The match, the origin and the name of the span have tests of their own.
func TestActions(t *testing.T) {
	for _, c := range actions {
		t.Run(c.name, func(t *testing.T) {
			want := &routev3.Route{}
			fromYAML(t, "{"+strings.ReplaceAll(c.want, "\t", " ")+"}", want)
			got := only(t, drawYAML(t, "http: [{"+c.rule+"}]"))
			if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(want, "match", "metadata", "decorator")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func set(k, v string) string {
	return `{header: {key: ` + k + `, value: "` + v + `"}, appendAction: OVERWRITE_IF_EXISTS_OR_ADD}`
}

func add(k, v string) string {
	return `{header: {key: ` + k + `, value: "` + v + `"}, appendAction: APPEND_IF_EXISTS_OR_ADD}`
}

// Tools rely on these names.
func TestRouteNames(t *testing.T) {
	vh := drawYAML(t, `
http:
- {name: api, match: [{name: exact, uri: {exact: /a}, statPrefix: stats}, {uri: {regex: /b.}}], route: [{destination: {host: a, subset: v1}}]}
- {match: [{uri: {prefix: /c}}], route: [{destination: {host: a}, weight: 1}, {destination: {host: b}, weight: 1}]}
- {directResponse: {status: 200}}
`)
	if vh.Name != reviews+":80" || !vh.IncludeRequestAttemptCount || !cmp.Equal(vh.Domains, []string{reviews, "reviews"}) {
		t.Errorf("virtual host %v", vh)
	}
	want := [][3]string{{"api.exact", "a:80/a", "stats"}, {"api", "a:80/b.", ""}, {"", "reviews:80/c*", ""}, {"", "reviews:80/*", ""}}
	for i, r := range vh.Routes {
		if got := [3]string{r.Name, r.Decorator.GetOperation(), r.StatPrefix}; got != want[i] {
			t.Errorf("route %d: %q, want %q", i, got, want[i])
		}
		config := r.Metadata.GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
		if config != "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/reviews" {
			t.Errorf("route %d comes from %q", i, config)
		}
	}
}

func TestDefaultRoute(t *testing.T) {
	want := &routev3.Route{}
	fromYAML(t, `{name: default, match: {prefix: /}, decorator: {operation: "`+reviews+`:80/*"}, route: {`+strings.Replace(toA, "||a", "||"+reviews, 1)+`}}`, want)
	if diff := cmp.Diff(want, only(t, draw(t, specOf(nil))), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// The mesh's retry policy applies to rules without a retry policy, and only to those.
func TestMeshRetries(t *testing.T) {
	mesh := func(r *networkingv1.HTTPRetry) *model.Mesh {
		config := model.MeshDefaults()
		config.DefaultHttpRetryPolicy = r
		return record[*model.Mesh](t, model.KindMesh, "mesh", config)
	}
	s := specOf(service(t, `http: [{match: [{uri: {exact: /own}}], retries: {attempts: 7}, route: [{destination: {host: a}}]}, {route: [{destination: {host: a}}]}]`))
	for _, c := range []struct {
		mesh *model.Mesh
		want uint32
	}{
		{mesh(&networkingv1.HTTPRetry{Attempts: 5}), 5}, {mesh(&networkingv1.HTTPRetry{}), 0}, {mesh(nil), 2}, {nil, 2},
	} {
		s.Mesh = c.mesh
		vh := draw(t, s)
		own, rest := vh.Routes[0].GetRoute().GetRetryPolicy(), vh.Routes[1].GetRoute().GetRetryPolicy()
		if own.GetNumRetries().GetValue() != 7 || rest.GetNumRetries().GetValue() != c.want || (rest == nil) != (c.want == 0) {
			t.Errorf("mesh %v: own %v, rest %v", c.mesh, own, rest)
		}
	}
}

// Filter configurations are left out for a proxy that does not list the filter.
func TestCaps(t *testing.T) {
	s := specOf(service(t, `http: [{fault: {abort: {httpStatus: 500, percentage: {value: 1}}}, corsPolicy: {}, route: [{destination: {host: a}}]}]`))
	for caps, want := range map[xds.Caps]int{0: 0, xds.CapFault: 1, xds.CapCORS: 1, xds.CapFault | xds.CapCORS: 2} {
		s.Caps = caps
		if got := len(only(t, draw(t, s)).TypedPerFilterConfig); got != want {
			t.Errorf("caps %b: %d filters configured, want %d", caps, got, want)
		}
	}
}

func TestHash(t *testing.T) {
	dr := rule(t, `
host: a
trafficPolicy:
  loadBalancer: {consistentHash: {httpHeaderName: x-top}}
  portLevelSettings: [{port: {number: 90}, loadBalancer: {consistentHash: {useSourceIp: true}}}, {port: {number: 91}, loadBalancer: {simple: RANDOM}}]
subsets:
- name: cookie
  trafficPolicy:
    loadBalancer: {consistentHash: {httpCookie: {name: c, path: /p, ttl: 5s, attributes: [{name: SameSite, value: Strict}]}}}
    portLevelSettings: [{port: {number: 92}, loadBalancer: {consistentHash: {httpQueryParameterName: q}}}]
- name: plain
- name: port
  trafficPolicy: {portLevelSettings: [{port: {number: 80}, loadBalancer: {consistentHash: {httpQueryParameterName: r}}}]}
`)
	const cookie = `{cookie: {name: c, path: /p, ttl: 5s, attributes: [{name: SameSite, value: Strict}]}}`
	for _, c := range []struct{ routes, want string }{
		{`[{destination: {host: a}}]`, `[{header: {headerName: x-top}}]`},
		{`[{destination: {host: a, port: {number: 90}}}]`, `[{connectionProperties: {sourceIp: true}}]`},
		{`[{destination: {host: a, port: {number: 91}}}]`, `[]`}, // the cluster of the port does not hash
		{`[{destination: {host: a, subset: plain}}]`, `[{header: {headerName: x-top}}]`},
		{`[{destination: {host: a, subset: port}}]`, `[{queryParameter: {name: r}}]`}, // the port is the cluster's
		{`[{destination: {host: a, subset: cookie}}]`, `[` + cookie + `]`},
		{`[{destination: {host: a, subset: cookie, port: {number: 90}}}]`, `[` + cookie + `]`},
		{`[{destination: {host: a, subset: cookie, port: {number: 92}}}]`, `[{queryParameter: {name: q}}]`},
		{`[{destination: {host: a}, weight: 1}, {destination: {host: a, subset: cookie}, weight: 1}, {destination: {host: a, subset: plain}, weight: 1}]`,
			`[{header: {headerName: x-top}}, ` + cookie + `]`},
	} {
		s := specOf(service(t, `http: [{route: `+c.routes+`}]`))
		var all []Destination
		for _, d := range s.Destinations.All() {
			all = append(all, hashed(d, dr))
		}
		s.Destinations = dests.List(all...)
		want := &routev3.RouteAction{}
		fromYAML(t, `{hashPolicy: `+c.want+`}`, want)
		got := only(t, draw(t, s)).GetRoute()
		if diff := cmp.Diff(want.HashPolicy, got.HashPolicy, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", c.routes, diff)
		}
		// A retry of a hashed request goes to the same host; among weighted clusters it may go to another, as in Istio.
		if stays := got.GetCluster() != "" && len(got.HashPolicy) > 0; stays == (len(got.RetryPolicy.RetryHostPredicate) > 0) {
			t.Errorf("%s: retry host predicates %v", c.routes, got.RetryPolicy.RetryHostPredicate)
		}
	}
	s := specOf(nil)
	d := s.Destinations.All()[0]
	s.Destinations = dests.List(hashed(d, dr))
	if got := only(t, draw(t, s)).GetRoute().GetHashPolicy(); len(got) != 1 || got[0].GetHeader().GetHeaderName() != "x-top" {
		t.Errorf("without a virtual service: %v", got)
	}
}

func TestCatchAll(t *testing.T) {
	allow := draw(t, CatchAll{Passthrough: true})
	if r := only(t, allow); allow.Name != "allow_any" || r.Name != "allow_any" || r.GetRoute().GetCluster() != "PassthroughCluster" ||
		r.GetRoute().GetTimeout() == nil || r.GetRoute().GetTimeout().AsDuration() != 0 || r.GetRoute().GetRetryPolicy() != nil {
		t.Errorf("allow_any: %v", allow)
	}
	block := draw(t, CatchAll{})
	if r := only(t, block); block.Name != "block_all" || r.Name != "block_all" || r.GetDirectResponse().GetStatus() != 502 {
		t.Errorf("block_all: %v", block)
	}
	byName := draw(t, CatchAll{Passthrough: true, ByName: true})
	if r := only(t, byName); byName.Name != "allow_any_dynamic_dns" || r.Name != byName.Name || r.GetRoute().GetCluster() != "AllowAnyDynamicDNSCluster" {
		t.Errorf("allow_any_dynamic_dns: %v", byName)
	}
	proxied := draw(t, CatchAll{Passthrough: true, ByName: true, EgressProxy: "egress"})
	if r := only(t, proxied); proxied.Name != "allow_any" || r.Name != proxied.Name || r.GetRoute().GetCluster() != "egress" {
		t.Errorf("by an egress proxy: %v", proxied)
	}
	sent := draw(t, CatchAll{Passthrough: true, ByName: true, Sent: true})
	if sent.Name != "allow_any_dynamic_dns" || len(sent.Routes) != 2 || sent.Routes[0].Name != "allow_any" || sent.Routes[0].GetRoute().GetCluster() != "PassthroughCluster" {
		t.Errorf("but for addresses: %v", sent)
	}
	for _, vh := range []*routev3.VirtualHost{allow, block, byName, sent} {
		if !cmp.Equal(vh.Domains, []string{"*"}) || walk(vh, request{path: "/x"}) == nil {
			t.Errorf("%s does not take everything", vh.Name)
		}
	}
}

// Equal Specs from new copies of the records make equal bytes, whatever the order of Go's maps.
func TestDeterministic(t *testing.T) {
	const text = `
http:
- match: [{headers: {a: {exact: "1"}, b: {}, c: {prefix: x}}, withoutHeaders: {d: {}, e: {exact: q}}, queryParams: {f: {}, g: {exact: z}}}]
  headers: {request: {set: {h: "1", i: "2", j: "3"}, add: {k: "4", l: "5"}}}
  fault: {abort: {httpStatus: 500, percentage: {value: 1}}}
  corsPolicy: {allowOrigins: [{exact: a}]}
  route: [{destination: {host: a}}]
`
	first, err := specOf(service(t, text)).Fragment()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		f, err := specOf(service(t, text)).Fragment()
		if err != nil || f.Hash != first.Hash || string(f.Bytes) != string(first.Bytes) {
			t.Fatalf("another fragment for the same Spec: %v", err)
		}
	}
}

func TestNoDomains(t *testing.T) {
	s := specOf(nil)
	s.Domains = strs.List()
	if _, err := s.Fragment(); err == nil || !strings.Contains(err.Error(), reviews+":80") {
		t.Errorf("a virtual host without domains: %v", err)
	}
}

// Envoy returns the lists of a CORS policy to clients. A list with control characters would add headers to the
// response.
func TestCORSListsAreOneLine(t *testing.T) {
	for field, p := range map[string]*networkingv1.CorsPolicy{
		"allowMethods[1]":  {AllowMethods: []string{"GET", "PUT\r\nX: y"}},
		"allowHeaders[0]":  {AllowHeaders: []string{"a\nb"}},
		"exposeHeaders[0]": {ExposeHeaders: []string{"a\x7f"}},
	} {
		var at *problem.At
		if _, err := corsConfig(p); !errors.As(err, &at) || at.Field != field || !strings.Contains(err.Error(), "control characters") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := corsConfig(&networkingv1.CorsPolicy{AllowMethods: []string{"GET"}, AllowHeaders: []string{"x-a", "*"}}); err != nil {
		t.Error(err)
	}
}
