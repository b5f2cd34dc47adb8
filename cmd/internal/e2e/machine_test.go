package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// machine is an agent as on a virtual machine: without Kubernetes, and only with the files that `istioctl x workload
// entry configure` writes.
type machine struct {
	cmd                            *exec.Cmd
	dir                            string
	health, stats, metrics, debugs string
	log                            *envoytest.Output
	exited                         chan struct{}
}

// startMachine runs an agent for service account web of namespace shop; more are rows of its cluster.env.
func startMachine(t testing.TB, d *daemon, data string, more ...string) *machine {
	t.Helper()
	dir := t.TempDir()
	rows := append([]string{"# as istioctl writes it", "POD_NAMESPACE='shop'", "SERVICE_ACCOUNT='web'", "ISTIO_SVC_IP=127.0.0.1", "TRUST_DOMAIN='cluster.local'",
		`ISTIO_METAJSON_LABELS='{"app":"web"}'`, "ISTIO_META_WORKLOAD_NAME='web'", "ISTIO_META_INTERCEPTION_MODE=NONE", "ISTIO_SERVICE_CIDR='*'",
		"ISTIOD_SAN='istiod.istio-system.svc'"}, more...)
	write(t, dir, "cluster.env", strings.Join(rows, "\n")+"\n")
	write(t, dir, "mesh", "defaultConfig: {discoveryAddress: '"+d.secure+"', terminationDrainDuration: 1s}\n")
	return runMachine(t, dir, "mesh", "token", filepath.Join(data, "root-cert.pem"))
}

// runMachine runs an agent with the files of a folder: cluster.env, and those that are named.
func runMachine(t testing.TB, dir, mesh, token, roots string) *machine {
	t.Helper()
	m := &machine{dir: dir, health: loopback.For(t), stats: loopback.For(t), metrics: loopback.For(t), debugs: loopback.For(t), log: &envoytest.Output{}, exited: make(chan struct{})}
	m.cmd = exec.Command(binary(t, "navarch-agent"), "--env-file", filepath.Join(m.dir, "cluster.env"), "--mesh-config", filepath.Join(m.dir, mesh),
		"--token-file", filepath.Join(m.dir, token), "--xds-root-cert", roots, "--pod-info", filepath.Join(m.dir, "none"),
		"--config-path", filepath.Join(m.dir, "proxy"), "--envoy-path", envoytest.Binary(t), "--concurrency", "1", "--admin-address", loopback.For(t),
		"--status-addr", m.health, "--stats-addr", m.stats, "--envoy-metrics-addr", m.metrics, "--debug-addr", m.debugs)
	m.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir}
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait() // how it ended is in ProcessState
		close(m.exited)
	}()
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		<-m.exited
		if t.Failed() {
			t.Logf("navarch-agent:\n%s", m.log)
		}
	})
	return m
}

// enrol puts the token on the machine.
func (m *machine) enrol(t testing.TB, data string) {
	t.Helper()
	write(t, m.dir, "token", token(t, data, "shop", "web"))
	eventually(t, patience, m.ready)
}

func (m *machine) ready() error {
	_, err := get(m.health, "/healthz/ready")
	return err
}

// saysNotReady wants an unready agent whose page holds all the texts.
func (m *machine) saysNotReady(texts ...string) error {
	resp, err := http.Get("http://" + m.health + "/healthz/ready")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("%d %s %v", resp.StatusCode, b, err)
	}
	for _, text := range texts {
		if !strings.Contains(string(b), text) {
			return fmt.Errorf("%q is not in %s", text, b)
		}
	}
	return nil
}

// memory returns VmRSS in MB (10^6 bytes), and its part without a file.
func (m *machine) memory(t testing.TB) (resident, anonymous float64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) float64 {
		_, rest, _ := bytes.Cut(text, []byte(name+":"))
		f := bytes.Fields(rest)
		if len(f) < 2 {
			t.Fatalf("no %s in\n%s", name, text)
		}
		kB, err := strconv.ParseFloat(string(f[0]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return kB * 1024 / 1e6
	}
	return field("VmRSS"), field("RssAnon")
}

// application starts an application with metrics, which is healthy at the path /well only.
func application(t *testing.T) *httptest.Server {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			_, _ = io.WriteString(w, "app_things_total 7\n")
		case "/well":
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(app.Close)
	return app
}

// A machine outside of Kubernetes joins with a token file; before it exists the agent reports it as missing. Metrics of
// Envoy, agent and application are on one page, probes reach the application, and /quitquitquit ends the agent in
// order.
func TestMachine(t *testing.T) {
	parallel(t)
	app := application(t)
	port := netip.MustParseAddrPort(app.Listener.Addr().String()).Port()
	data := t.TempDir()
	d := start(t, "--config-dir", folder(t), "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	m := startMachine(t, d, data,
		fmt.Sprintf(`ISTIO_PROMETHEUS_ANNOTATIONS='{"scrape":"true","port":"%d"}'`, port),
		fmt.Sprintf(`ISTIO_KUBE_APP_PROBERS='{"/app-health/web/livez":{"httpGet":{"path":"/well","port":%d}},"/app-health/web/readyz":{"httpGet":{"path":"/ill","port":%d}}}'`, port, port))
	eventually(t, patience, func() error {
		return m.saysNotReady("no certificate of the mesh yet: ", filepath.Join(m.dir, "token"), "Envoy is ", "the control plane at "+d.secure)
	})
	m.enrol(t, data)

	m.knowsItself(t)
	m.showsPages(t)

	resp, err := http.Post("http://"+m.stats+"/quitquitquit", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	select {
	case <-m.exited:
	case <-time.After(patience):
		t.Fatal("/quitquitquit did not end it")
	}
	if !m.cmd.ProcessState.Success() || !strings.Contains(m.log.String(), "drained for the whole time allowed") {
		t.Errorf("ended with %v", m.cmd.ProcessState)
	}
}

// knowsItself checks the identity on the agent's page.
func (m *machine) knowsItself(t *testing.T) {
	t.Helper()
	var page struct {
		Node        string
		Certificate struct{ URI string }
	}
	if text, err := get(m.debugs, "/debug"); err != nil || json.Unmarshal([]byte(text), &page) != nil {
		t.Fatal(text, err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	if page.Certificate.URI != "spiffe://cluster.local/ns/shop/sa/web" || page.Node != "sidecar~127.0.0.1~"+host+".shop~shop.svc.cluster.local" {
		t.Errorf("%+v", page)
	}
}

// showsPages checks the pages that each port serves, and those that it refuses.
func (m *machine) showsPages(t *testing.T) {
	t.Helper()
	text, err := get(m.stats, "/stats/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nistio_agent_cert_expiry_seconds{resource_name=\"default\"} ", "\nenvoy_server_live{} 1\n", "\napp_things_total 7\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %.3000s", want, text)
		}
	}
	if text, err := get(m.metrics, "/stats/prometheus"); err != nil || !strings.Contains(text, "\nenvoy_server_live{} 1\n") {
		t.Errorf("Envoy's own page: %v\n%.500s", err, text)
	}
	for _, path := range []string{"/quitquitquit", "/config_dump", "/stats/prometheus/../../certs", "/"} {
		if text, err := get(m.metrics, path); err == nil {
			t.Errorf("Envoy's metrics port shows %s:\n%.100s", path, text)
		}
	}
	if _, err := get(m.stats, "/app-health/web/livez"); err != nil {
		t.Error(err)
	}
	if _, err := get(m.stats, "/app-health/web/readyz"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an application that is ill: %v", err)
	}
	if _, err := get(m.health, "/stats/prometheus"); err == nil {
		t.Error("the health port, which load balancers reach, shows metrics")
	}
}

// Missing requirements of a machine are reported at once, by name.
func TestMachineLacks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bad.env", "POD_NAMESPACE=$(whoami)\n")
	write(t, dir, "good.env", "POD_NAMESPACE=shop\nISTIO_SVC_IP=127.0.0.1\n")
	for want, args := range map[string][]string{
		"POD_NAMESPACE is not set: a pod has it by injection, a machine from cluster.env": nil,
		"no such file or directory":                       {"--env-file", filepath.Join(dir, "none.env")},
		"bad.env: line 1: value of POD_NAMESPACE: '$'":    {"--env-file", filepath.Join(dir, "bad.env")},
		"no Envoy to run (--envoy-path)":                  {"--env-file", filepath.Join(dir, "good.env"), "--envoy-path", filepath.Join(dir, "envoy")},
		`TERMINATION_DRAIN_DURATION_SECONDS="5s": want a`: {"--env-file", filepath.Join(dir, "good.env"), "--env-file", filepath.Join(dir, "drain.env")},
	} {
		write(t, dir, "drain.env", "TERMINATION_DRAIN_DURATION_SECONDS=5s\n")
		cmd := exec.Command(binary(t, "navarch-agent"), args...)
		cmd.Env, cmd.Dir = []string{"PATH="}, dir
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, %s\nwant %q", args, err, out, want)
		}
	}
}

// BenchmarkAgentMemory measures the memory of navarch-agent with a certificate, a scraper, and a real Envoy that
// receives the configuration of 500 services through the relay and its secrets by SDS. Target: 25 MB.
func BenchmarkAgentMemory(b *testing.B) {
	dir, data := b.TempDir(), b.TempDir()
	var mesh strings.Builder
	for i := range 500 {
		fmt.Fprintf(&mesh, "---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: 10.96.%d.%d, selector: {app: s%d}, ports: [{name: http, port: 80}, {name: tcp, port: 9000}]}\n", i, i/250, 1+i%250, i)
	}
	write(b, dir, "mesh.yaml", mesh.String())
	d := start(b, "--config-dir", dir, "--data-dir", data)
	eventually(b, patience, d.ready)
	for range b.N {
		m := startMachine(b, d, data)
		m.enrol(b, data)
		for range 3 {
			if _, err := get(m.stats, "/stats/prometheus"); err != nil {
				b.Fatal(err)
			}
		}
		resident, anonymous := m.memory(b)
		b.ReportMetric(resident, "MB")
		b.ReportMetric(anonymous, "MB-anonymous")
		_ = m.cmd.Process.Kill()
		<-m.exited
	}
}
