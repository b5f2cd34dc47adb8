package extension

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

// module is WebAssembly that answers every request with 200 and "module", as its sections
// (https://webassembly.github.io/spec/core/binary/modules.html, https://github.com/proxy-wasm/spec).
func module(t *testing.T) []byte {
	t.Helper()
	raw, err := hex.DecodeString(strings.Join([]string{
		"0061736d01000000", // magic and version
		"011c0460087f7f7f7f7f7f7f7f017f60000060017f017f60037f7f7f017f",                               // types: of the import and the three functions
		"0221" + "01" + "03656e76" + "1970726f78795f73656e645f6c6f63616c5f726573706f6e7365" + "0000", // import env.proxy_send_local_response
		"030403010203", // functions
		"0503010001",   // a page of memory
		"075a04066d656d6f72790200" + "1770726f78795f6162695f76657273696f6e5f305f325f310001" + // exports: memory, proxy_abi_version_0_2_1,
			"1870726f78795f6f6e5f6d656d6f72795f616c6c6f636174650002" + "1870726f78795f6f6e5f726571756573745f686561646572730003", // proxy_on_memory_allocate, proxy_on_request_headers
		"0a2303" + "02000b" + "05004180080b" + "180041c80141004100411041064100410041" + "7f10001a41010b", // code: nothing; 1024; the answer, and pause
		"0b0c010041100b066d6f64756c65", // data: "module" at 16
	}, ""))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A real Envoy fetches a module with the stated sum and runs it; with another sum it refuses the traffic.
func TestEnvoyRunsModules(t *testing.T) {
	t.Parallel()
	code := module(t)
	sum := sha256.Sum256(code)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(code) }))
	t.Cleanup(server.Close)
	right, wrong := hex.EncodeToString(sum[:]), strings.Repeat("0", 64)
	at := map[string]int{right: loopback.PortFor(t), wrong: loopback.PortFor(t)}
	var listeners []string
	for sum, port := range at {
		listeners = append(listeners, listener(t, port, server.URL+"/m.wasm", sum))
	}
	_, backend, _ := net.SplitHostPort(server.Listener.Addr().String())
	e := envoytest.Start(t, envoytest.JSON(t, fmt.Appendf(nil, `{"node": {"id": "n", "cluster": "c"}, "static_resources": {"listeners": [%s], "clusters": [
{"name": "outbound|%[2]s||127.0.0.1", "connect_timeout": "1s", "type": "STATIC", "load_assignment": {"cluster_name": "m", "endpoints": [{"lb_endpoints": [
{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %[2]s}}}}]}]}}]}}`, strings.Join(listeners, ","), backend)))
	e.Live()
	for sum, want := range map[string]string{right: "200 module", wrong: "503 "} {
		if got := answered(at[sum]); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// listener returns a listener whose first filter runs a module.
func listener(t *testing.T, port int, url, sum string) string {
	t.Helper()
	e := record(t, model.KindWasmPlugin, &extensionsv1.TrafficExtension{FilterConfig: &extensionsv1.TrafficExtension_Wasm{Wasm: &extensionsv1.WasmConfig{Url: url, Sha256: sum}}})
	r, err := Config{Extension: e.(*model.TrafficExtension)}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return filtering(t, port, r, false)
}

// filtering returns a listener whose first filter has a configuration, for connections or requests.
func filtering(t *testing.T, port int, r *xds.Resource, connections bool) string {
	t.Helper()
	config := &corev3.TypedExtensionConfig{}
	if err := proto.Unmarshal(r.Body(), config); err != nil {
		t.Fatal(err)
	}
	filter, err := protojson.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	network, http := "", string(filter)+","
	if connections {
		network, http = http, ""
	}
	return fmt.Sprintf(`{"name": "%[1]d", "address": {"socket_address": {"address": "127.0.0.1", "port_value": %[1]d}}, "filter_chains": [{"filters": [%[3]s{"name": "http", "typed_config": {
"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in", "http_filters": [%[2]s
{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 204}}]}]}}}]}]}`, port, http, network)
}

// A stand-in for a refused configuration follows failStrategy, and a real Envoy accepts it.
func TestEnvoyTakesStandIns(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"{lua: {inlineCode: this is none}}":                                                     "503 ",
		"{wasm: {url: 'file:///none'}}":                                                         "403 RBAC: access denied",
		"{wasm: {url: 'file:///none', failStrategy: FAIL_RELOAD}}":                              "403 RBAC: access denied",
		"{wasm: {url: 'file:///none', failStrategy: FAIL_OPEN}}":                                "204 ",
		"{wasm: {url: 'file:///none', type: NETWORK}}":                                          "EOF",
		"{wasm: {url: 'file:///none', type: NETWORK, failStrategy: FAIL_OPEN}}":                 "204 ",
		"{wasm: {url: 'oci://r.example/none', imagePullSecret: pull, failStrategy: FAIL_OPEN}}": "204 ",
	}
	at := map[string]int{}
	var listeners []string
	for text := range answers {
		spec := &extensionsv1.TrafficExtension{}
		fromYAML(t, text, spec)
		e := record(t, model.KindTrafficExtension, spec).(*model.TrafficExtension)
		r, err := Config{Extension: e, ByAgent: true}.Build()
		if spec.GetWasm().GetImagePullSecret() != "" {
			credentials := model.PrivateKey(`{"auths": {"r.example": {"auth": "hunter2"}}}`)
			r, err = Pulled{e, record(t, model.KindSecret, &model.SecretSpec{Mac: []byte("mac")}).(*model.Secret), &credentials}.Build()
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.StandIn == nil || !r.StandIn.StandsIn() || r.StandIn.Name != r.Name || r.StandIn.Confidential || r.StandIn.Version == r.Version {
			t.Fatalf("%s: %+v stands in", text, r.StandIn)
		}
		at[text] = loopback.PortFor(t)
		listeners = append(listeners, filtering(t, at[text], r.StandIn, spec.GetWasm().GetType() == extensionsv1.PluginType_NETWORK))
	}
	e := envoytest.Start(t, envoytest.JSON(t, fmt.Appendf(nil, `{"node": {"id": "n", "cluster": "c"}, "static_resources": {"listeners": [%s]}}`, strings.Join(listeners, ","))))
	e.Live()
	for text, want := range answers {
		if got := answered(at[text]); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// answered returns the response of a port, or the error.
func answered(port int) string {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}
