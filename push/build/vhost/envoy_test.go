package vhost

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/route"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

var fragments intern.Table[*xds.Fragment]

// routeConfig decodes a whole route configuration from its rope, as Envoy does.
func routeConfig(t *testing.T, specs ...fragmenter) *routev3.RouteConfiguration {
	t.Helper()
	var hosts []*xds.Fragment
	for _, s := range specs {
		f, err := s.Fragment()
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, f)
	}
	r, err := route.Spec{Name: "80", Hosts: fragments.List(hosts...)}.Build()
	if err != nil {
		t.Fatal(err)
	}
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(r.Body(), rc); err != nil {
		t.Fatal(err)
	}
	return rc
}

// bootstrap returns the configuration of an Envoy with one listener on a free port; clusters maps names to endpoints.
func bootstrap(t *testing.T, rc *routev3.RouteConfiguration, clusters map[string][]string) envoytest.Bootstrap {
	t.Helper()
	raw, err := protojson.Marshal(rc)
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	const ext = "type.googleapis.com/envoy.extensions.filters."
	filter := func(name, typ string) object {
		return object{"name": name, "typed_config": object{"@type": ext + typ}}
	}
	address := func(host string, port int) object {
		return object{"socket_address": object{"address": host, "port_value": port}}
	}
	var all []object
	for name, endpoints := range clusters {
		var hosts []object
		for _, e := range endpoints {
			u, err := url.Parse(e)
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.Atoi(u.Port())
			if err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, object{"endpoint": object{"address": address(u.Hostname(), port)}})
		}
		all = append(all, object{"name": name, "lb_policy": "RING_HASH", "load_assignment": object{
			"cluster_name": name, "endpoints": []object{{"lb_endpoints": hosts}}}})
	}
	hcm := object{"@type": ext + "network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "test",
		"route_config": json.RawMessage(raw), "http_filters": []object{
			filter("envoy.filters.http.cors", "http.cors.v3.Cors"), filter("envoy.filters.http.fault", "http.fault.v3.HTTPFault"),
			filter("envoy.filters.http.router", "http.router.v3.Router")}}
	return envoytest.Bootstrap{"static_resources": object{
		"clusters": all,
		"listeners": []object{{"name": "in", "address": address("127.0.0.1", 0), "filter_chains": []object{{
			"filters": []object{{"name": "hcm", "typed_config": hcm}}}}}}}}
}

// Envoy accepts one route configuration with every route of the table tests.
func TestEnvoyAccepts(t *testing.T) {
	binary := envoytest.Binary(t)
	var specs []fragmenter
	for i, text := range []string{everyFeature, `http: [{route: [{destination: {host: nowhere}}]}]`, ``} {
		s := specOf(nil)
		if text != "" {
			s = specOf(service(t, text))
		}
		s.Host = fmt.Sprintf("h%d", i)
		s.Domains = strs.List(s.Host, s.Host+".shop", "*."+s.Host)
		specs = append(specs, s)
	}
	rc := routeConfig(t, append(specs, CatchAll{Passthrough: true})...)
	validate := func(rc *routev3.RouteConfiguration) string {
		return envoytest.Validate(binary, envoytest.File(t, bootstrap(t, rc, nil)))
	}
	if complaint := validate(rc); complaint != "" {
		t.Errorf("Envoy: %s", complaint)
	}
	rc.VirtualHosts[0].Routes[0].Match.PathSpecifier = &routev3.RouteMatch_Path{Path: "/"}
	rc.VirtualHosts[1].Domains = rc.VirtualHosts[0].Domains // the judge is awake
	if validate(rc) == "" {
		t.Error("Envoy accepts a domain twice")
	}
}

var everyFeature = `
http:
- {name: direct, match: [{uri: {exact: /direct}}], directResponse: {status: 418, body: {string: short and stout}}}
- {name: large, match: [{uri: {exact: /large}}], directResponse: {status: 200, body: {string: "` + large + `"}}}
- {name: redirect, match: [{uri: {prefix: /old/}}], redirect: {prefixRewrite: /new/, authority: other, redirectCode: 307, scheme: https, port: 8443}}
- name: header
  match: [{headers: {x-team: {regex: "b.*"}}, withoutHeaders: {x-not: {exact: "1"}}, uri: {prefix: /team}, queryParams: {q: {}}}]
  headers: {request: {set: {x-set: "100%%", x-path: "%REQ(:path)%", transfer-encoding: chunked}, add: {x-add: a, Content-Length: "7"}, remove: [x-team]}, response: {set: {x-answer: "yes", content-length: "3"}}}
  rewrite: {uri: /rewritten, authority: new.host}
  route: [{destination: {host: a, subset: v2}, headers: {response: {add: {x-dest: v2}}}}]
- name: weights
  match: [{uri: {prefix: /weights}}]
  route: [{destination: {host: a, subset: v1}, weight: 4}, {destination: {host: a, subset: v2}, weight: 1, headers: {request: {set: {x-w: v2}}}}]
- {name: nowhere, match: [{uri: {prefix: /nowhere}}], route: [{destination: {host: nowhere}}], retries: {attempts: 0}}
- {name: slow, match: [{uri: {prefix: /slow}}], timeout: 0.1s, retries: {attempts: 0}, route: [{destination: {host: a, subset: v1}}]}
- {name: grpc, match: [{uri: {prefix: /hang}}], retries: {attempts: 0}, route: [{destination: {host: a, subset: v1}}]}
- {name: flaky, match: [{uri: {prefix: /flaky}}], retries: {attempts: 3, retryOn: "503", backoff: 0.001s, perTryTimeout: 5s, retryRemoteLocalities: true}, route: [{destination: {host: a, subset: v1}}]}
- {name: fault, match: [{uri: {prefix: /fault}}], fault: {abort: {httpStatus: 451, percentage: {value: 100}}}, route: [{destination: {host: a, subset: v1}}]}
- {name: mirror, match: [{uri: {prefix: /mirror}}], mirrors: [{destination: {host: m}}], route: [{destination: {host: a, subset: v1}}]}
- {name: regex, match: [{uri: {regex: "/re/[0-9]+"}}], rewrite: {uriRegexRewrite: {match: "/re/(.*)", rewrite: "/got/\\1"}}, route: [{destination: {host: a, subset: v1}}]}
- {name: cors, match: [{uri: {prefix: /cors}}], corsPolicy: {allowOrigins: [{exact: "http://good"}], allowMethods: [GET], maxAge: 60s}, route: [{destination: {host: a, subset: v1}}]}
- {match: [{uri: {prefix: /CASE}, ignoreUriCase: true, method: {exact: GET}, authority: {prefix: "127."}, scheme: {exact: http}}], directResponse: {status: 299}}
- {name: claimed, match: [{uri: {prefix: /claims}, headers: {"@request.auth.claims.group": {exact: a}}}], directResponse: {status: 298}}
- {name: unclaimed, match: [{uri: {prefix: /claims}, withoutHeaders: {"@request.auth.claims[group][of]": {prefix: a}, "@request.auth.claims[other]": {}}}], directResponse: {status: 297}}
- {name: rest, route: [{destination: {host: a, subset: v1}}]}
`

// large exceeds Envoy's default limit of a direct response.
var large = strings.Repeat("x", 8192)

// startEnvoy returns the address of the listener when Envoy is ready.
func startEnvoy(t *testing.T, config envoytest.Bootstrap) string {
	t.Helper()
	e := envoytest.Start(t, config)
	e.Live()
	text, err := e.Get("/listeners")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(text, "in::"))
}

// seen is a request as the backend received it.
type seen struct {
	Backend, Path, Host string
	Header              http.Header
}

// backend responds with the request that it received, and publishes it; /slow and /hang do not respond before the
// client closes.
func backend(t *testing.T, name string, saw func(seen)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := seen{name, r.URL.RequestURI(), r.Host, r.Header}
		saw(s)
		switch {
		case strings.HasPrefix(r.URL.Path, "/slow"), strings.HasPrefix(r.URL.Path, "/hang"):
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/flaky") && r.Header.Get("X-Envoy-Attempt-Count") != "3":
			w.WriteHeader(503)
		default:
			_ = json.NewEncoder(w).Encode(s)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
