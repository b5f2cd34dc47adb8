package envoytest

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/store/loopback"
)

// answers is a bootstrap with one listener, which responds to every request itself.
func answers(t *testing.T, port int) Bootstrap {
	return JSON(t, fmt.Appendf(nil, `{"node":{"id":"n","cluster":"c"},"static_resources":{"listeners":[{"name":"in",
"address":{"socket_address":{"address":"127.0.0.1","port_value":%d}},"filter_chains":[{"filters":[{"name":"http","typed_config":{
"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager","stat_prefix":"in",
"http_filters":[{"name":"router","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
"route_config":{"virtual_hosts":[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},"direct_response":{"status":204}}]}]}}}]}]}]}}`, port))
}

// A live Envoy responds at once, and counts.
func TestLive(t *testing.T) {
	port := loopback.PortFor(t)
	e := Start(t, answers(t, port))
	e.Live()
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d", port))
	if err != nil || res.StatusCode != 204 {
		t.Fatalf("%+v, %v", res, err)
	}
	res.Body.Close()
	stats, err := Stats(e.Admin)
	if n, ok := stats["server.live"]; err != nil || !ok || n != 1 || stats["listener_manager.total_listeners_active"] != 1 {
		t.Errorf("%d stats, %v", len(stats), err)
	}
}

// failed replaces the test that an ended Envoy must fail.
type failed struct {
	testing.TB
	text string
}

func (f *failed) Helper() {}
func (f *failed) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	panic(f)
}

func TestEnded(t *testing.T) {
	f := &failed{TB: t}
	e := Start(t, Bootstrap{"static_resources": map[string]any{"listeners": 7}})
	e.t = f
	defer func() {
		if recover() != f || f.text != "Envoy has ended" || !strings.Contains(e.output.String(), "listeners") {
			t.Errorf("%q: %s", f.text, e.output.String())
		}
	}()
	e.Live()
}

func TestValidate(t *testing.T) {
	binary := Binary(t)
	for server, want := range map[string]string{"127.0.0.1:1": "socket_address", filepath.Join(t.TempDir(), "socket"): "pipe"} {
		b := ADS("DELTA_GRPC", server)
		if complaint := Validate(binary, File(t, b)); complaint != "" {
			t.Errorf("%s: %s", server, complaint)
		}
		if !strings.Contains(fmt.Sprint(b), want) {
			t.Errorf("%s: %v", server, b)
		}
	}
	if Validate(binary, File(t, ADS("NO_GRPC", "127.0.0.1:1"))) == "" {
		t.Error("the judge sleeps")
	}
}
