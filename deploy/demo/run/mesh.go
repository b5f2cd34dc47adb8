package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/deploy/demo/site"
	"navarch.io/navarch/store/loopback"
)

const (
	startLimit = 60 * time.Second
	askLimit   = 3 * time.Second
	egressPort = 8000 // of the egress listeners and their Services: above the ports that require root
)

// place contains the addresses and folders of one workload.
type place struct {
	app, admin, status, debug string // addresses, ip:port
	egress                    string // address for the app's calls; empty: the services' own addresses
	enter                     []string
	asProxy                   []string // prefix of the agent's command line, if not enter
	config                    string   // the agent's folder
	mode                      string   // INTERCEPTION_MODE
	client                    *http.Client
}

// mesh is the running demo: a control plane, and for each workload an app and an agent with its Envoy.
type mesh struct {
	dir, config     string
	programs        string // folder of our programs
	agent, envoy    string // paths of programs
	children        *children
	services        *services
	places          map[string]place // by pod
	listen          string           // address that navarchd binds, without port
	grpc, http, mon string           // addresses of navarchd
	navarchd        *proc
	web             *caller
	site            *site.Site
	gateway         workload             // receives the user's requests
	front           workload             // the workload that receives them next
	perEdit         int                  // responses to the first edit, over all proxies
	cutOff          map[string]agentPage // pages while the control plane was away
}

// loopback sets the loopback address of w, one for all its parts. This requires no root.
func (m *mesh) loopback(w workload) place {
	return place{
		app: fmt.Sprintf("%s:%d", w.ip,
			appPort), admin: w.ip + ":15000", status: w.ip + ":15021", debug: w.ip + ":15004", egress: fmt.Sprintf("%s:%d", w.ip, egressPort),
		config: filepath.Join(m.dir, w.pod), mode: "NONE", client: &http.Client{Timeout: askLimit},
	}
}

func (m *mesh) bin(name string) string { return filepath.Join(m.programs, name) }

// control returns a client for navarchd's own pages.
func (m *mesh) control() *http.Client { return &http.Client{Timeout: askLimit} }

// usualPage is navarchd's page where navarchctl looks for it without a kubeconfig.
const usualPage = "127.0.0.1:8080"

// choosePorts fixes navarchd's addresses for the whole demo, including restarts. The pages are at the usual address if
// that is free.
func (m *mesh) choosePorts() (err error) {
	for _, a := range []*string{&m.grpc, &m.http, &m.mon} {
		if *a, err = loopback.On(m.listen); err != nil {
			return err
		}
	}
	if free, err := net.Listen("tcp", usualPage); err == nil && m.listen == "127.0.0.1" {
		m.http = usualPage
		return free.Close()
	}
	return nil
}

// startControlPlane starts navarchd, and returns the time until it was ready.
func (m *mesh) startControlPlane(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	env := []string{"DEFAULT_WORKLOAD_CERT_TTL=" + leafTTL.String(),
		"NAVARCH_GATEWAY_LOCAL_DESTINATIONS=true"} // workloads without a network of their own have loopback addresses
	p, err := m.children.spawn("navarchd", env, m.bin("navarchd"), "--config-dir", m.config, "--data-dir", m.data(),
		"--secure-grpc-addr", m.grpc, "--http-addr", m.http, "--monitoring-addr", m.mon, "--ctrlz-addr", "")
	if err != nil {
		return 0, err
	}
	m.navarchd = p
	err = m.children.await(ctx, "navarchd ready", startLimit, func(ctx context.Context) error {
		if _, err := os.Stat(filepath.Join(m.data(), "root-cert.pem")); err != nil {
			return err
		}
		_, err := ask(ctx, m.control(), http.MethodGet, "http://"+m.http+"/ready")
		return err
	})
	return time.Since(began), err
}

// startWorkloads starts all apps and agents, and waits until every proxy is ready.
func (m *mesh) startWorkloads(ctx context.Context) error {
	for name, addr := range m.services.outside {
		if _, err := m.children.spawn("app-"+name, nil, m.bin("app"), "-addr", addr, "-name", name); err != nil {
			return err
		}
	}
	for _, w := range m.services.workloads {
		if !w.gateway {
			if err := m.startApp(w); err != nil {
				return err
			}
		}
		if err := m.startAgent(w); err != nil {
			return err
		}
	}
	for _, w := range m.services.workloads {
		at := m.places[w.pod]
		err := m.children.await(ctx, w.pod+" ready", startLimit, func(ctx context.Context) error {
			_, err := ask(ctx, at.client, http.MethodGet, "http://"+at.status+"/healthz/ready")
			return err
		})
		if err != nil {
			return fmt.Errorf("%w; its agent's last words:\n%s", err, tail(filepath.Join(m.children.logs, "agent-"+w.pod+".log"), 15))
		}
	}
	return nil
}

func (m *mesh) startApp(w workload) error {
	at := m.places[w.pod]
	argv := append(slices.Clone(at.enter), m.bin("app"), "-addr", at.app, "-name", w.name(), "-version", w.version(), "-egress", at.egress)
	for name, to := range m.services.upstreams {
		argv = append(argv, "-upstream", name+"="+to)
	}
	for host, ip := range m.services.virtual {
		argv = append(argv, "-resolve", host+"="+ip)
	}
	_, err := m.children.spawn("app-"+w.pod, nil, argv...)
	return err
}

// startAgent starts an agent with the environment that injection sets.
func (m *mesh) startAgent(w workload) error {
	labels, err := json.Marshal(w.labels)
	if err != nil {
		return err
	}
	at := m.places[w.pod]
	env := []string{
		"POD_NAME=" + w.pod, "POD_NAMESPACE=" + w.namespace, "INSTANCE_IP=" + w.ip, "SERVICE_ACCOUNT=" + w.account,
		"ISTIO_METAJSON_LABELS=" + string(labels), "ISTIO_META_INTERCEPTION_MODE=" + at.mode, "ISTIO_META_CLUSTER_ID=Kubernetes",
		"ISTIO_META_WORKLOAD_NAME=" + w.name(),
	}
	if err := m.credentials(w); err != nil {
		return err
	}
	kind := "sidecar"
	if w.gateway {
		kind = "router"
	}
	argv := append(slices.Clone(at.asProxy), m.agent, "run", "--type", kind,
		"--discovery-address", m.grpc, "--xds-server-name", "istiod.istio-system.svc",
		"--xds-root-cert", filepath.Join(at.config, "root-cert.pem"), "--token-file", filepath.Join(at.config, "token"),
		"--config-path", at.config, "--pod-info", filepath.Join(at.config, "none"), "--envoy-path", m.envoy,
		"--admin-address", at.admin, "--status-addr", at.status, "--debug-addr", at.debug, "--concurrency", "1",
		"--stats-addr", partner(at.status, "15020"), "--envoy-metrics-addr", partner(at.status, "15090"),
		"--termination-drain-duration", "1s")
	_, err = m.children.spawn("agent-"+w.pod, env, argv...)
	return err
}

// partner returns another port of the same host.
func partner(address, port string) string {
	host, _, _ := net.SplitHostPort(address)
	return net.JoinHostPort(host, port)
}

// ask returns the body of url; a status other than 200 is an error.
func ask(ctx context.Context, c *http.Client, method, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %.400s", url, resp.StatusCode, strings.TrimSpace(string(b)))
	}
	return b, err
}

// agentPage is the part of an agent's /debug that the demo uses.
type agentPage struct {
	Ready bool
	XDS   struct {
		Connected bool
		Connects  int
		Total     struct{ Requests, RequestBytes, Responses, ResponseBytes, SocketReadBytes int }
		Streams   []struct{ LastRequest, LastResponse *time.Time }
	}
	Envoy struct{ Starts int }
}

func (m *mesh) page(ctx context.Context, w workload) (agentPage, error) {
	var page agentPage
	at := m.places[w.pod]
	b, err := ask(ctx, at.client, http.MethodGet, "http://"+at.debug+"/debug")
	if err == nil {
		err = json.Unmarshal(b, &page)
	}
	return page, err
}

// pages returns the pages of all agents.
func (m *mesh) pages(ctx context.Context) (map[string]agentPage, error) {
	out := map[string]agentPage{}
	for _, w := range m.services.workloads {
		page, err := m.page(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("agent of %s: %w", w.pod, err)
		}
		out[w.pod] = page
	}
	return out, nil
}

// retries returns the number of retries by the Envoys of ws, which could hide failures.
func (m *mesh) retries(ctx context.Context, ws ...workload) (int, error) {
	sum := 0
	for _, w := range ws {
		n, err := m.stat(ctx, w, `^cluster\..*\.upstream_rq_retry$`)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// stat returns the sum of the counters of w's Envoy whose names match filter.
func (m *mesh) stat(ctx context.Context, w workload, filter string) (int, error) {
	at := m.places[w.pod]
	b, err := ask(ctx, at.client, http.MethodGet, "http://"+at.admin+"/stats?format=json&filter="+url.QueryEscape(filter))
	if err != nil {
		return 0, err
	}
	var out struct{ Stats []struct{ Value int } }
	if err := json.Unmarshal(b, &out); err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", w.pod, err)
	}
	sum := 0
	for _, s := range out.Stats {
		sum += s.Value
	}
	return sum, nil
}

// configure sets a fault of w's app, for example "_fail?ratio=1".
func (m *mesh) configure(ctx context.Context, w workload, what string) error {
	at := m.places[w.pod]
	_, err := ask(ctx, at.client, http.MethodGet, "http://"+at.app+"/"+what)
	return err
}
