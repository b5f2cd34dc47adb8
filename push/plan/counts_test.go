//go:build !race

package plan

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/istiometrics"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	local "navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/model"
)

// spelled returns an Envoy's metrics as its agent exposes them.
func spelled(t *testing.T, e *envoytest.Envoy, own istiometrics.Workload) string {
	t.Helper()
	page, err := e.Get("/stats/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := istiometrics.NewPage(&out, own)
	if _, err = io.WriteString(p, page); err == nil {
		err = p.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// sees waits until the only line of Istio's metric with these labels has the value: Envoy merges histograms
// periodically.
func sees(t *testing.T, e *envoytest.Envoy, own istiometrics.Workload, want, metric string, labels ...string) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	page := ""
	for limit := time.Now().Add(envoytest.Patience); time.Now().Before(limit); <-again.C {
		if page = spelled(t, e, own); value(page, metric, labels...) == want {
			return
		}
	}
	t.Fatalf("%s%v: %q, want %q, of\n%s", metric, labels, value(page, metric, labels...), want, page)
}

// value returns the value of the only line that begins with the metric and contains all these labels: "" if there is
// none, "several" if there are several.
func value(page, metric string, labels ...string) (got string) {
	for line := range strings.Lines(page) {
		has := strings.HasPrefix(line, metric+"{")
		for _, l := range labels {
			has = has && strings.Contains(line, l)
		}
		if has && got != "" {
			return "several"
		}
		if has {
			got = strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:])
		}
	}
	return got
}

// counting are a client's and a server's Envoys that count, and the ports by which requests reach the server: through
// the client's Envoy, directly to the server's Envoy, and as a TCP connection.
type counting struct {
	client, server      *envoytest.Envoy
	through, plain, tcp int
}

// clientOf and serverOf are the workloads of the two Envoys.
var (
	clientOf = istiometrics.Of("client-v1", "a", "east", map[string]string{"app": "client", "version": "v1"})
	serverOf = istiometrics.Of("server-v2", "b", "west", map[string]string{"app": "server", "version": "v2"})
)

// startCounting runs both Envoys, with mTLS between them, and an application that answers hello; more are additional
// records.
func startCounting(t *testing.T, more ...model.Record) counting {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, "hello")
	}))
	t.Cleanup(app.Close)
	backend := app.Listener.Addr().(*net.TCPAddr).Port
	in, out, tcpIn, tcpOut := local.PortFor(t), local.PortFor(t), local.PortFor(t), local.PortFor(t)
	bound := "{port: {number: %d, protocol: %s, name: %s}, bind: 127.0.0.1, captureMode: NONE, %s}"
	egress := fmt.Sprintf(bound+", "+bound, out, "HTTP", "x", "hosts: ['b/*']", tcpOut, "TCP", "t", "hosts: ['b/*']")
	to := fmt.Sprintf("defaultEndpoint: '127.0.0.1:%d'", backend)
	ingress := fmt.Sprintf(bound+", "+bound, in, "HTTP", "x", to, tcpIn, "TCP", "t", to)
	s := snapshot(append(more,
		rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, enableAutoMtls: true, defaultProviders: {metrics: [prometheus]}}"),
		rec(t, model.KindService, "b/server", fmt.Sprintf(`{hosts: [server.b.svc.cluster.local], exportTo: ['*'], selector: {app: server}, addresses: [10.96.0.9],
			ports: [{name: http, number: %d, protocol: PROTOCOL_HTTP, targetNumber: %d}, {name: tcp, number: %d, protocol: PROTOCOL_TCP, targetNumber: %d}]}`, out, in, tcpOut, tcpIn)),
		rec(t, model.KindEndpoints, "b/server-1", fmt.Sprintf(`{hosts: [server.b.svc.cluster.local], ports: [{name: http, number: %d}, {name: tcp, number: %d}],
			endpoints: [{address: 127.0.0.1, labels: {app: server, version: v2}, namespace: b, workload: server-v2, cluster: west, serviceAccount: server, mtls: true}]}`, in, tcpIn)),
		rec(t, model.KindSidecar, "a/s", "egress: ["+egress+"]"),
		rec(t, model.KindSidecar, "b/s", "{ingress: ["+ingress+"], egress: [{hosts: ['~/*']}]}"),
	)...)
	ca := newAuthority(t)
	run := func(namespace, account string, labels ...string) *envoytest.Envoy {
		n := node(namespace, "x", labels...)
		n.Caps |= xds.CapIdentity | xds.CapStatsLog
		n.Mode = view.None
		config := envoytest.JSON(t, fold(t, planFor(s, n)))
		fromFiles(config, ca.secrets("spiffe://cluster.local/ns/"+namespace+"/sa/"+account))
		e := envoytest.Start(t, config)
		e.Live()
		return e
	}
	return counting{server: run("b", "server", "app=server"), client: run("a", "client"), through: out, plain: in, tcp: tcpOut}
}

// call sends two requests that succeed, one for a missing path, one without TLS, and one TCP connection.
func (c counting) call(t *testing.T) {
	t.Helper()
	for _, to := range []struct {
		port int
		path string
	}{{c.through, "/"}, {c.through, "/"}, {c.through, "/missing"}, {c.plain, "/"}, {c.tcp, "/"}} {
		r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", to.port, to.path), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "server.b.svc.cluster.local"
		resp, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// Two real Envoys without Istio's stats filter, with mTLS between them, count requests and connections by the workloads
// of both ends, with Istio's labels.
func TestEnvoysCountByWorkload(t *testing.T) {
	c := startCounting(t)
	c.call(t)
	const to = `destination_workload="server-v2"`
	ends := []string{`reporter="source"`, `source_workload="client-v1"`, to, `source_workload_namespace="a"`, `source_canonical_service="client"`, `source_cluster="east"`,
		`destination_workload_namespace="b"`, `destination_canonical_service="server"`, `destination_canonical_revision="v2"`, `destination_cluster="west"`,
		`destination_service="server.b.svc.cluster.local"`, `destination_service_name="server"`, `destination_service_namespace="b"`,
		`source_principal="spiffe://cluster.local/ns/a/sa/client"`, `destination_principal="spiffe://cluster.local/ns/b/sa/server"`,
		`connection_security_policy="unknown"`, `response_flags="-"`}
	with := func(more ...string) []string { return slices.Concat(ends, more) }
	sees(t, c.client, clientOf, "2", istiometrics.Requests, with(`request_protocol="http"`, `response_code="200"`)...)
	sees(t, c.client, clientOf, "1", istiometrics.Requests, with(`response_code="404"`)...)
	sees(t, c.client, clientOf, "2", istiometrics.Duration+"_count", with(`response_code="200"`)...)
	sees(t, c.client, clientOf, "2", istiometrics.Response+"_count", with(`response_code="200"`)...)
	sees(t, c.client, clientOf, "1", istiometrics.Opened, with(`request_protocol="tcp"`)...)
	called := []string{`reporter="destination"`, `source_workload="client"`, `source_workload_namespace="a"`, to, `destination_canonical_service="server"`,
		`destination_service="server.b.svc.cluster.local"`, `destination_service_name="server"`, `source_principal="spiffe://cluster.local/ns/a/sa/client"`, `connection_security_policy="mutual_tls"`}
	sees(t, c.server, serverOf, "2", istiometrics.Requests, slices.Concat(called, []string{`response_code="200"`})...)
	sees(t, c.server, serverOf, "1", istiometrics.Closed, slices.Concat(called, []string{`request_protocol="tcp"`})...)
	sees(t, c.server, serverOf, "1", istiometrics.Requests, `reporter="destination"`, `source_workload="unknown"`, `source_principal="unknown"`, to, `connection_security_policy="none"`)
}

// Labels that clients choose cannot exhaust an Envoy's memory: a listener counts a limited number of label
// combinations. Requests with others are answered but not counted; known combinations are still counted.
func TestCountsAreBounded(t *testing.T) {
	const most, asked = 2000, 2100
	c := startCounting(t, rec(t, model.KindTelemetry, "b/t",
		`{metrics: [{providers: [{name: prometheus}], overrides: [{match: {metric: REQUEST_COUNT}, tagOverrides: {team: {value: "request.headers['x-team']"}}}]}]}`))
	client := &http.Client{Timeout: time.Minute}
	call := func(team int) {
		r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", c.plain), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "server.b.svc.cluster.local"
		r.Header.Set("x-team", fmt.Sprint("team-", team))
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %s", team, resp.Status)
		}
	}
	for i := range asked {
		call(i)
	}
	call(0)
	sees(t, c.server, serverOf, "2", istiometrics.Requests, `team="team-0"`)
	page := spelled(t, c.server, serverOf)
	if n := strings.Count(page, istiometrics.Requests+"{"); n != most || strings.Contains(page, fmt.Sprintf(`team="team-%d"`, asked-1)) {
		t.Errorf("%d sets of labels are counted, want %d", n, most)
	}
}
