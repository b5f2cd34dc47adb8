// Package envoytest runs the real Envoy for tests.
//
// Owns: the processes that it starts, until their test ends.  Never: used outside tests.
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

// Patience is how long tests wait for what takes an instant on a machine that does nothing else.
const Patience = time.Minute

// Pause is how long to wait before looking again for what has been waited for: what comes at once is seen at once, and what takes
// long is not asked for all the time, of processes that other tests need.
func Pause(waited time.Duration) time.Duration {
	return max(5*time.Millisecond, min(waited/10, 250*time.Millisecond))
}

// Binary is the path of Envoy: NAVARCH_ENVOY, or what `make tools` installs. A test that is skipped says nothing, so
// without an Envoy it fails.
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

// root is the folder of the repository; tests run in that of their package.
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

// Bootstrap is Envoy's configuration in the form of its JSON.
type Bootstrap = map[string]any

// JSON is the bootstrap that a text holds.
func JSON(t testing.TB, text []byte) Bootstrap {
	t.Helper()
	var b Bootstrap
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatalf("bootstrap: %v\n%s", err, text)
	}
	return b
}

// ADS is the bootstrap of a sidecar that takes clusters and listeners from a server: host:port, or the path of a Unix
// socket. api is DELTA_GRPC or GRPC. Where the server goes away, it comes back within a fifth of a second.
func ADS(api, server string) Bootstrap {
	type object = map[string]any
	address := object{"pipe": object{"path": server}}
	if host, port, err := net.SplitHostPort(server); err == nil {
		address = object{"socket_address": object{"address": host, "port_value": json.Number(port)}}
	}
	const http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	service := object{"cluster_name": "xds", "retry_policy": object{"retry_back_off": object{"base_interval": "0.05s", "max_interval": "0.2s"}}}
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

// File writes a bootstrap and returns its path.
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

// Validate is Envoy's own judgement of the bootstrap in a file: "" or its first complaint.
func Validate(binary, file string) string {
	out, err := exec.Command(binary, "--mode", "validate", "-c", file, "--disable-hot-restart", "-l", "error").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out))
	}
	return ""
}

// Envoy is a process.
type Envoy struct {
	Admin string // host:port of its admin page

	t     testing.TB
	said  Output
	ended chan struct{}
}

// Output is what a process wrote so far. The zero Output is empty; safe for concurrent use.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *Output) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String implements fmt.Stringer.
func (s *Output) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Start runs Envoy with a bootstrap, to which it adds an admin page, until the test ends. Where the test fails, its log
// has what Envoy said.
func Start(t testing.TB, b Bootstrap) *Envoy {
	t.Helper()
	return StartVersion(t, Binary(t), b)
}

// StartVersion is Start of the Envoy at a path.
func StartVersion(t testing.TB, binary string, b Bootstrap) *Envoy {
	t.Helper()
	e := &Envoy{Admin: loopback.For(t), t: t, ended: make(chan struct{})}
	host, port, _ := net.SplitHostPort(e.Admin)
	b["admin"] = map[string]any{"address": map[string]any{"socket_address": map[string]any{"address": host, "port_value": json.Number(port)}}}
	cmd := exec.Command(binary, "-c", File(t, b), "--disable-hot-restart", "--concurrency", "1", "-l", "warning")
	cmd.Stdout, cmd.Stderr = &e.said, &e.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with a test that is ended at its time limit
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in what it said
		close(e.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-e.ended
		if t.Failed() {
			t.Logf("Envoy:\n%.8000s", e.said.String())
		}
	})
	return e
}

// Live returns once Envoy has all that its bootstrap asks for, and listens. Where it ends instead, the test does.
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

// Get fetches one of the admin's pages; any status but 200 is an error.
func (e *Envoy) Get(path string) (string, error) { return get(e.Admin, path) }

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

// Stats are the counters and gauges of an Envoy that has this admin address (host:port), by their names. An error: it does not answer, or with something else.
func Stats(admin string) (map[string]int, error) {
	text, err := get(admin, "/stats?format=json")
	if err != nil {
		return nil, err
	}
	var page struct {
		Stats []struct {
			Name  string
			Value any // a text where it is no counter or gauge
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
