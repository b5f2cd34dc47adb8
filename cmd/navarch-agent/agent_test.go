package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loopback"
)

const deadline = envoytest.Patience

// TestMain runs the agent if the test binary was started as one, so that signals and deaths affect a real process.
func TestMain(m *testing.M) {
	if os.Getenv("NAVARCH_TEST_AGENT") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is an agent under test.
type process struct {
	t                    *testing.T
	cmd                  *exec.Cmd
	out                  *envoytest.Output
	done                 chan error
	status, debug, admin string
	stats, metrics       string
}

func startAgent(t *testing.T, discovery string, flags ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &process{t: t, out: &envoytest.Output{}, done: make(chan error, 1), status: loopback.For(t), debug: loopback.For(t), admin: loopback.For(t), stats: loopback.For(t), metrics: loopback.For(t)}
	p.cmd = exec.Command(os.Args[0], append([]string{
		"run", "--discovery-address", discovery, "--config-path", dir, "--envoy-path", envoytest.Binary(t), "--concurrency", "1",
		"--admin-address", p.admin, "--status-addr", p.status, "--debug-addr", p.debug, "--pod-info", dir,
		"--stats-addr", p.stats, "--envoy-metrics-addr", p.metrics,
	}, flags...)...)
	p.cmd.Env = append(os.Environ(), "NAVARCH_TEST_AGENT=1", "POD_NAME=web-1", "POD_NAMESPACE=shop", "INSTANCE_IP=127.0.0.1",
		"ISTIO_META_CLUSTER_ID=east", "XDS_HEADER_X-Test=yes", "ISTIO_META_DNS_CAPTURE="+os.Getenv(testCapture))
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.cmd.Process.Kill() // Envoy dies with it, see TestEnvoyDiesWithTheAgent
		if t.Failed() {
			t.Logf("agent said:\n%s", p.out)
		}
	})
	return p
}

func (p *process) page() (debugPage, error) {
	var page debugPage
	resp, err := http.Get("http://" + p.debug + "/debug")
	if err != nil {
		return page, err
	}
	defer resp.Body.Close()
	return page, json.NewDecoder(resp.Body).Decode(&page)
}

// until polls the agent's debug page until ok returns true, and returns that page.
func (p *process) until(what string, ok func(debugPage) bool) debugPage {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(deadline); ; <-tick.C {
		page, err := p.page()
		if err == nil && ok(page) {
			return page
		}
		select {
		case exit := <-p.done:
			p.t.Fatalf("%s: the agent ended: %v", what, exit)
		default:
		}
		if time.Now().After(limit) {
			p.t.Fatalf("%s: %+v, %v", what, page, err)
		}
	}
}

func (p *process) exit() error {
	p.t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(deadline):
		p.t.Fatal("the agent did not end")
		return nil
	}
}

func (p *process) readiness() int {
	resp, err := http.Get("http://" + p.status + "/healthz/ready")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func get(url string) error {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: deadline}
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
		return fmt.Errorf("status %d, %s, %v", resp.StatusCode, b, err)
	}
	return nil
}

func (f *fakeADS) next(t *testing.T, typeURL string) seenStream {
	t.Helper()
	limit := time.After(deadline)
	for {
		select {
		case s := <-f.first:
			if s.request.TypeUrl == typeURL {
				return s
			}
		case <-limit:
			t.Fatalf("no request for %s", typeURL)
		}
	}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// A proxy is configured through the relay, loses the control plane, reconnects without a byte of configuration,
// crashes, and is drained.
func TestLife(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
	}))
	defer backend.Close()
	listener := loopback.For(t)
	ads := newFakeADS(t, listener, backend.Listener.Addr().String())
	addr, server := ads.start(t, loopback.For(t))
	t.Setenv("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true")
	t.Setenv("MINIMUM_DRAIN_DURATION", "500ms")
	p := startAgent(t, addr, "--xds-plaintext")

	p.begins(ads, listener)
	server.Stop()
	page := p.reconnects(ads, addr, listener)
	page = p.crashes(ads, page)
	p.drains(page, listener, arrived, release)
}

// begins checks the first connection: the request states Envoy's node, and no resources.
func (p *process) begins(ads *fakeADS, listener string) {
	t := p.t
	t.Helper()
	first := ads.next(t, cdsType)
	if id := first.request.Node.GetId(); id != "sidecar~127.0.0.1~web-1.shop~shop.svc.cluster.local" || len(first.request.InitialResourceVersions) != 0 {
		t.Errorf("first request: node %q, versions %v", id, first.request.InitialResourceVersions)
	}
	// With an identity it is what the control plane plans ahead for (shard/fleet).
	id := &identity{node: proto.Clone(first.request.Node).(*corev3.Node)}
	id.claim()
	raw, err := proto.Marshal(id.node)
	if err != nil {
		t.Fatal(err)
	}
	if node, err := view.Parse(raw, "east"); err != nil || node.Caps != xds.AgentCaps {
		t.Errorf("capabilities %x, want %x: %v", uint64(node.Caps), uint64(xds.AgentCaps), err)
	}
	if h := first.headers; h.Get("clusterid")[0] != "east" || h.Get("x-test")[0] != "yes" || h.Get("authorization") != nil {
		t.Errorf("headers: %v", h)
	}
	page := p.until("ready", func(d debugPage) bool { return d.Ready })
	if page.Envoy.Starts != 1 || page.XDS.Total.ResponseBytes == 0 || p.readiness() != 200 {
		t.Errorf("when ready: %+v, /healthz/ready %d", page, p.readiness())
	}
	if err := get("http://" + listener); err != nil {
		t.Fatal(err)
	}
}

// reconnects checks the agent while the control plane is away: traffic continues. Once the control plane is back, it
// need not send any resource.
func (p *process) reconnects(ads *fakeADS, addr, listener string) debugPage {
	t := p.t
	t.Helper()
	p.until("cut off", func(d debugPage) bool { return !d.XDS.Connected && d.XDS.Failures > 1 })
	if err := get("http://" + listener); err != nil || p.readiness() != 200 {
		t.Errorf("with the control plane away: %v, /healthz/ready %d", err, p.readiness())
	}
	for len(ads.first) > 0 {
		<-ads.first
	}
	ads.start(t, addr)
	again := ads.next(t, cdsType)
	if v := again.request.InitialResourceVersions; v["app"] != "hash-of-app" || len(v) != 1 {
		t.Errorf("versions held after the reconnect: %v", v)
	}
	if v := ads.next(t, ldsType).request.InitialResourceVersions; v["in"] != "hash-of-in" {
		t.Errorf("listener versions: %v", v)
	}
	page := p.until("requests counted", func(d debugPage) bool {
		last := d.XDS.Streams[len(d.XDS.Streams)-1]
		return d.XDS.Connected && last.Requests >= 2
	})
	if last := page.XDS.Streams[len(page.XDS.Streams)-1]; last.ResponseBytes != 0 || last.RequestBytes == 0 {
		t.Errorf("bytes on the new stream: %+v", last)
	}
	return page
}

// crashes kills Envoy: another one begins, and claims nothing.
func (p *process) crashes(ads *fakeADS, page debugPage) debugPage {
	t := p.t
	t.Helper()
	syscall.Kill(page.Envoy.PID, syscall.SIGKILL)
	if v := ads.next(t, cdsType).request.InitialResourceVersions; len(v) != 0 {
		t.Errorf("a new Envoy claims to hold %v", v)
	}
	page = p.until("ready after the crash", func(d debugPage) bool { return d.Ready && d.Envoy.Starts == 2 })
	if page.Envoy.Crashes != 1 || !strings.Contains(page.Envoy.LastExit, "killed") {
		t.Errorf("after the crash: %+v", page.Envoy)
	}
	return page
}

// drains stops the agent with a request under way, which the application holds from arrived to release.
func (p *process) drains(page debugPage, listener string, arrived, release chan struct{}) {
	t := p.t
	t.Helper()
	// A client that reads metrics does not keep a draining Envoy alive.
	watcher, err := net.Dial("tcp", p.metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	slow := make(chan error, 1)
	go func() { slow <- get("http://" + listener + "/slow") }()
	<-arrived
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.until("draining", func(d debugPage) bool { return d.Draining })
	if code := p.readiness(); code != 503 {
		t.Errorf("/healthz/ready while draining: %d", code)
	}
	if !alive(page.Envoy.PID) {
		t.Error("Envoy was stopped with a request under way")
	}
	close(release)
	if err := <-slow; err != nil {
		t.Errorf("request under way while draining: %v", err)
	}
	if err := p.exit(); err != nil {
		t.Errorf("agent ended with %v", err)
	}
	if alive(page.Envoy.PID) || !strings.Contains(p.out.String(), "drained, no connection is left") {
		t.Error("Envoy outlived the agent, or was not drained")
	}
}

func TestAgentWaitsForTheControlPlane(t *testing.T) {
	ads := newFakeADS(t, loopback.For(t), "127.0.0.1:1")
	addr := loopback.For(t)
	p := startAgent(t, addr, "--xds-plaintext", "--termination-drain-duration", "1s")
	p.until("refused", func(d debugPage) bool { return d.XDS.Failures > 1 && d.Envoy.PID != 0 && !d.Ready })
	if code := p.readiness(); code != 503 {
		t.Errorf("/healthz/ready without configuration: %d", code)
	}
	ads.start(t, addr)
	p.until("ready", func(d debugPage) bool { return d.Ready })
}

// Whichever way the agent is killed, its Envoy ends too.
func TestEnvoyDiesWithTheAgent(t *testing.T) {
	p := startAgent(t, loopback.For(t), "--xds-plaintext")
	pid := p.until("running", func(d debugPage) bool { return d.Envoy.PID != 0 }).Envoy.PID
	p.cmd.Process.Kill()
	p.exit()
	for limit := time.Now().Add(deadline); alive(pid); {
		// An orphan may be a zombie until init reaps it.
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("Envoy lives on")
		}
	}
}

// A finished job ends its proxy by /quitquitquit: the agent then ends too.
func TestQuitIsNoCrash(t *testing.T) {
	addr := loopback.For(t)
	p := startAgent(t, addr, "--xds-plaintext")
	p.until("answering", func(d debugPage) bool {
		return strings.Contains(d.NotReady, "INITIALIZING; the control plane at "+addr+" is not reached")
	})
	resp, err := http.Post("http://"+p.admin+"/quitquitquit", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := p.exit(); err != nil {
		t.Errorf("agent ended with %v", err)
	}
}
