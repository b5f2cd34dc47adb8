package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// agentPage is the part of the agent's debug page that the tests read.
type agentPage struct {
	Ready       bool
	NotReady    string
	Certificate struct {
		URI, Serial, LastFailure string
	}
	XDS struct {
		Connected                         bool
		LastError                         string
		Upstream, Owner                   string
		AtOwner                           bool
		Moves, MovesFailed, StreamsOpened uint64
	}
}

// startAgent runs an agent and its Envoy for a workload of namespace shop, with a token of navarchd's own issuer. It
// returns the folder of its files, and what reads its debug page.
func startAgent(t testing.TB, d *daemon, data, workload, ip string, more ...string) (dir string, page func() (agentPage, error)) {
	t.Helper()
	p := runAgent(t, d, data, filepath.Join(data, "root-cert.pem"), workload, ip, more...)
	return p.dir, p.page
}

// proxy is an agent and its Envoy.
type proxy struct {
	dir   string // of its files
	admin string // Envoy's admin address
	page  func() (agentPage, error)
}

// runAgent works like startAgent, but with its own root file.
func runAgent(t testing.TB, d *daemon, data, roots, workload, ip string, more ...string) proxy {
	t.Helper()
	return runAgentWith(t, d, data, roots, workload, ip, nil, more...)
}

// runAgentWith works like runAgent, with additions to the environment.
func runAgentWith(t testing.TB, d *daemon, data, roots, workload, ip string, env []string, more ...string) proxy {
	t.Helper()
	return runAgentProgram(t, d, binary(t, "navarch-agent"), token(t, data, "shop", workload), roots, workload, ip, env, more...)
}

// runAgentProgram works like runAgentWith, for another build and with a given token.
func runAgentProgram(t testing.TB, d *daemon, program, token, roots, workload, ip string, env []string, more ...string) proxy {
	t.Helper()
	dir := t.TempDir()
	tokenFile := filepath.Join(dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	debug, admin := loopback.For(t), loopback.For(t)
	args := append(more, "--discovery-address", d.secure, "--xds-server-name", "istiod.istio-system.svc",
		"--xds-root-cert", roots, "--token-file", tokenFile, "--config-path", filepath.Join(dir, "proxy"),
		"--envoy-path", envoytest.Binary(t), "--admin-address", admin, "--status-addr", loopback.For(t), "--debug-addr", debug, "--concurrency", "1",
		"--stats-addr", loopback.For(t), "--envoy-metrics-addr", loopback.For(t), "--output-certs", filepath.Join(dir, "certs"))
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "POD_NAME="+workload+"-0", "POD_NAMESPACE=shop", "SERVICE_ACCOUNT="+workload, "INSTANCE_IP="+ip,
		"ISTIO_META_INTERCEPTION_MODE=NONE", fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q}`, workload))
	cmd.Env = append(cmd.Env, env...)
	log := &envoytest.Output{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("navarch-agent %s:\n%s", workload, log)
		}
	})
	return proxy{dir, admin, func() (p agentPage, err error) {
		text, err := get(debug, "/debug")
		if err == nil {
			err = json.Unmarshal([]byte(text), &p)
		}
		return p, err
	}}
}

// An agent gets its workload's certificate with a token, speaks to the control plane with it, and renews it at half of
// its short life, while a real Envoy is served.
func TestAgentIdentity(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	d := startProgram(t, navarchd(t), []string{"DEFAULT_WORKLOAD_CERT_TTL=6s"}, "--config-dir", folder(t), "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	dir, page := startAgent(t, d, data, "web", "127.0.0.1")
	var first string
	eventually(t, patience, func() error {
		p, err := page()
		if err != nil {
			return err
		}
		if !p.Ready || p.Certificate.URI != "spiffe://cluster.local/ns/shop/sa/web" || !p.XDS.Connected {
			return fmt.Errorf("%+v", p)
		}
		first = p.Certificate.Serial
		return nil
	})
	eventually(t, patience, func() error {
		p, err := page()
		if err == nil && (p.Certificate.Serial == first || !p.Ready || !p.XDS.Connected) {
			err = fmt.Errorf("not renewed: %+v", p)
		}
		return err
	})
	if files, err := filepath.Glob(filepath.Join(dir, "certs", "*.pem")); err != nil || len(files) < 3 {
		t.Errorf("certificates written: %v, %v", files, err)
	}
}
