package vhost

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/route"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// envoyBinary skips the test where there is no Envoy.
func envoyBinary(t *testing.T) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		path, err := filepath.Abs(filepath.Join(dir, ".tools", "bin", "envoy"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if filepath.Dir(filepath.Dir(filepath.Dir(path))) == "/" {
			break
		}
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		t.Skip("no Envoy here: neither .tools/bin/envoy nor in PATH")
	}
	return path
}

var fragments intern.Table[*xds.Fragment]

// routeConfig is the whole of it as Envoy would read it from the rope.
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

// bootstrap is an Envoy with one listener on a free port; clusters are names and their endpoints.
func bootstrap(t *testing.T, rc *routev3.RouteConfiguration, clusters map[string][]string) string {
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
	text, err := json.Marshal(object{"admin": object{"address": address("127.0.0.1", 0)}, "static_resources": object{
		"clusters": all,
		"listeners": []object{{"name": "in", "address": address("127.0.0.1", 0), "filter_chains": []object{{
			"filters": []object{{"name": "hcm", "typed_config": hcm}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Everything that the table tests draw, in one route configuration, as Envoy judges it.
func TestEnvoyAccepts(t *testing.T) {
	binary := envoyBinary(t)
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
	validate := func(rc *routev3.RouteConfiguration) ([]byte, error) {
		return exec.Command(binary, "--mode", "validate", "-c", bootstrap(t, rc, nil), "--disable-hot-restart", "-l", "warning").CombinedOutput()
	}
	out, err := validate(rc)
	if err != nil {
		t.Errorf("Envoy: %v\n%s", err, out)
	}
	rc.VirtualHosts[0].Routes[0].Match.PathSpecifier = &routev3.RouteMatch_Path{Path: "/"}
	rc.VirtualHosts[1].Domains = rc.VirtualHosts[0].Domains // the judge is awake
	if _, err := validate(rc); err == nil {
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
  headers: {request: {set: {x-set: "100%%", x-path: "%REQ(:path)%"}, add: {x-add: a}, remove: [x-team]}, response: {set: {x-answer: "yes"}}}
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
- {name: rest, route: [{destination: {host: a, subset: v1}}]}
`

// large is beyond Envoy's default limit for a direct response.
var large = strings.Repeat("x", 8192)

// startEnvoy returns the address of the listener once Envoy serves.
func startEnvoy(t *testing.T, config string) string {
	t.Helper()
	admin := filepath.Join(t.TempDir(), "admin")
	cmd := exec.Command(envoyBinary(t), "-c", config, "--disable-hot-restart", "--concurrency", "1", "--admin-address-path", admin, "-l", "info")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	serving, log := make(chan struct{}), make(chan string, 1)
	go func() {
		var all strings.Builder
		for s := bufio.NewScanner(stderr); s.Scan(); {
			fmt.Fprintln(&all, s.Text())
			if strings.Contains(s.Text(), "starting workers") {
				close(serving)
			}
		}
		log <- all.String()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-log
		_ = cmd.Wait()
	})
	select {
	case <-serving:
	case text := <-log:
		log <- text
		t.Fatalf("Envoy ended:\n%s", text)
	case <-time.After(20 * time.Second):
		t.Fatal("Envoy does not serve after 20 s")
	}
	address, err := os.ReadFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + string(address) + "/listeners")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(text), "in::"))
}

// seen is what a backend saw of a request.
type seen struct {
	Backend, Path, Host string
	Header              http.Header
}

// backend tells what it saw, and passes it on; /slow and /hang do not end before the client does.
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
