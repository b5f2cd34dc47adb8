// Package envoytest runs the real Envoy for tests.
//
// Owns: the processes that it starts, until their test ends. Never: runs outside of tests.
package envoytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/store/loopback"
)

// Patience is the time after which waits in tests fail. It is long, because a busy machine is slow.
const Patience = time.Minute

// Pause returns the time to sleep between two checks of a condition. waited is the time since the first check. The
// result is a tenth of waited, but at least 5 ms and at most 250 ms. So a fast condition is detected early, and checks
// of a slow condition do not delay other processes.
func Pause(waited time.Duration) time.Duration {
	return max(5*time.Millisecond, min(waited/10, 250*time.Millisecond))
}

// Binary returns the absolute path of the Envoy binary. The environment variable NAVARCH_ENVOY names the binary. If the
// variable is empty, Binary returns the path of the Envoy that `make tools` installs: .tools/bin/envoy in the folder of
// the repository. If the file does not exist, the test ends with a failure, because a skipped test proves nothing.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("NAVARCH_ENVOY")
	if path == "" {
		path = filepath.Join(root(t), ".tools", "bin", "envoy")
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("no Envoy: run `make tools`, or set NAVARCH_ENVOY (%v)", err)
	}
	return path
}

// root returns the folder of the repository. It starts at the folder of the test's package, in which tests run.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
}

// Bootstrap is Envoy's configuration, as decoded JSON.
type Bootstrap = map[string]any

// JSON decodes a bootstrap from JSON. If the text does not decode, the test ends with a failure.
func JSON(t testing.TB, text []byte) Bootstrap {
	t.Helper()
	var b Bootstrap
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatalf("bootstrap: %v\n%s", err, text)
	}
	return b
}

// SDS changes where Envoy gets secrets from, in each reference to a secret within v. v is decoded JSON. The function
// source gets the name of a secret and the reference's sdsConfig, and returns the new sdsConfig. If the result is nil,
// the reference gets no sdsConfig, and Envoy uses the secret in the bootstrap.
func SDS(v any, source func(name string, now map[string]any) map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		if now, is := v["sdsConfig"].(map[string]any); is {
			name, _ := v["name"].(string)
			if next := source(name, now); next != nil {
				v["sdsConfig"] = next
			} else {
				delete(v, "sdsConfig")
			}
		}
		for _, inner := range v {
			SDS(inner, source)
		}
	case []any:
		for _, inner := range v {
			SDS(inner, source)
		}
	}
}

// ADS returns a new bootstrap of a sidecar that receives clusters and listeners from a server. server is an IP address
// with port (address:port), or the path of a Unix socket. api is DELTA_GRPC, or GRPC for the state-of-the-world
// protocol. Envoy waits at most 0.2 s before each attempt to reconnect.
func ADS(api, server string) Bootstrap {
	type object = map[string]any
	address := object{"pipe": object{"path": server}}
	if host, port, err := net.SplitHostPort(server); err == nil {
		address = object{"socket_address": object{"address": host, "port_value": json.Number(port)}}
	}
	const http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	backOff := object{"base_interval": "0.05s", "max_interval": "0.2s"}
	service := object{"cluster_name": "xds", "retry_policy": object{"retry_back_off": backOff}}
	source := object{"ads": object{}, "resource_api_version": "V3"}
	return Bootstrap{
		"node": object{"id": "sidecar~127.0.0.1~web.default~default.svc.cluster.local", "cluster": "web"},
		"dynamic_resources": object{
			"ads_config": object{"api_type": api, "transport_api_version": "V3", "set_node_on_first_message_only": true,
				"grpc_services": []any{object{"envoy_grpc": service}}},
			"cds_config": source, "lds_config": source,
		},
		"static_resources": object{"clusters": []any{object{"name": "xds", "connect_timeout": "1s", "type": "STATIC",
			"typed_extension_protocol_options": object{http2: object{"@type": "type.googleapis.com/" + http2,
				"explicit_http_config": object{"http2_protocol_options": object{}}}},
			"load_assignment": object{"cluster_name": "xds", "endpoints": []any{object{"lb_endpoints": []any{
				object{"endpoint": object{"address": address}}}}}}}}},
	}
}

// File writes a bootstrap as JSON to a file, and returns the file's path. The file is removed when the test ends. On an
// error the test ends with a failure.
func File(t testing.TB, b Bootstrap) string {
	t.Helper()
	text, err := json.Marshal(b)
	path := filepath.Join(t.TempDir(), "envoy.json")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Validate validates the bootstrap in a file with the Envoy binary. It returns "" for a valid bootstrap. Otherwise it
// returns the error of the process and Envoy's output, also if the binary cannot be started.
func Validate(binary, file string) string {
	out, err := exec.Command(binary, "--mode", "validate", "-c", file, "--disable-hot-restart", "-l", "error").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out))
	}
	return ""
}

// Envoy is a running Envoy. Start and StartVersion make it.
type Envoy struct {
	Admin string // host:port of the admin interface, on loopback

	t      testing.TB
	output Output
	ended  chan struct{}
}

// Output collects the output of a process. The zero Output is empty and ready for use. It is safe for concurrent use,
// and must not be copied.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p to the output. It implements io.Writer, and never fails.
func (s *Output) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String returns the output so far.
func (s *Output) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Start starts the Envoy of Binary with a bootstrap, and kills it when the test ends. It sets "admin" in b, which must
// not be nil. It does not wait until Envoy is ready (Live). If Envoy cannot be started, the test ends with a failure.
// If the test fails, its log contains the first 8,000 characters of Envoy's output.
func Start(t testing.TB, b Bootstrap) *Envoy {
	t.Helper()
	return StartVersion(t, Binary(t), b)
}

// StartVersion does the same as Start, with the Envoy binary at the path binary.
func StartVersion(t testing.TB, binary string, b Bootstrap) *Envoy {
	t.Helper()
	e := &Envoy{Admin: loopback.For(t), t: t, ended: make(chan struct{})}
	host, port, _ := net.SplitHostPort(e.Admin)
	socket := map[string]any{"address": host, "port_value": json.Number(port)}
	b["admin"] = map[string]any{"address": map[string]any{"socket_address": socket}}
	cmd := exec.Command(binary, "-c", File(t, b), "--disable-hot-restart", "--concurrency", "1", "-l", "warning")
	cmd.Stdout, cmd.Stderr = &e.output, &e.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // ends Envoy even if the test is killed at its time limit
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the output has the reason
		close(e.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-e.ended
		if t.Failed() {
			t.Logf("Envoy:\n%.8000s", e.output.String())
		}
	})
	return e
}

// Live blocks until Envoy reports LIVE on its page /ready. Envoy has then received the resources that its bootstrap
// requests, or no longer waits for them. If Envoy ends first, or is not live after Patience, the test ends with a
// failure.
func (e *Envoy) Live() {
	e.t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	limit := time.After(Patience)
	for {
		text, err := e.Get("/ready")
		if err == nil && strings.HasPrefix(text, "LIVE") {
			return
		}
		select {
		case <-again.C:
		case <-e.ended:
			e.t.Fatal("Envoy has ended")
		case <-limit:
			e.t.Fatalf("Envoy is not live: %q, %v", text, err)
		}
	}
}

// Get requests a page of the admin interface and returns its body. path begins with a slash. Errors: the request fails,
// the response is not complete after Patience, or the status is not 200. With an error, the result is the part of the
// body that was read.
func (e *Envoy) Get(path string) (string, error) { return get(e.Admin, path) }

// get fetches a page of the admin interface at an address.
func get(admin, path string) (string, error) {
	client := http.Client{Timeout: Patience}
	res, err := client.Get("http://" + admin + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, text)
	}
	return string(text), err
}

// Stats returns the counters and gauges of an Envoy by name. admin is the host:port of its admin interface. Errors: the
// request fails as for Envoy.Get, or the page does not decode. With an error the map is nil.
func Stats(admin string) (map[string]int, error) {
	text, err := get(admin, "/stats?format=json")
	if err != nil {
		return nil, err
	}
	var page struct {
		Stats []struct {
			Name  string
			Value any // a number for counters and gauges
		}
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, fmt.Errorf("stats of Envoy: %w", err)
	}
	all := map[string]int{}
	for _, s := range page.Stats {
		if n, ok := s.Value.(float64); ok {
			all[s.Name] = int(n)
		}
	}
	return all, nil
}
