package plan

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// istioPage is an Envoy's page of metrics as its agent shows it: the lines of Istio's metrics, without buckets.
func istioPage(t *testing.T, e *envoytest.Envoy, own istiometrics.Workload) []string {
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
	var lines []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, istiometrics.Prefix) && !strings.Contains(line, "_bucket{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// value is that of the one line which begins with the metric and has all these labels; "" where there is none, or several.
func value(lines []string, metric string, labels ...string) (got string) {
	for _, line := range lines {
		has := strings.HasPrefix(line, metric+"{")
		for _, l := range labels {
			has = has && strings.Contains(line, l)
		}
		if has && got != "" {
			return "several"
		}
		if has {
			got = line[strings.LastIndexByte(line, ' ')+1:]
		}
	}
	return got
}

// Two real Envoys without Istio's filter, with mTLS between them, count requests and connections by the workloads of both ends, as Istio's filter does.
func TestEnvoysCountByWorkload(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, "hello")
	}))
	defer app.Close()
	backend := app.Listener.Addr().(*net.TCPAddr).Port
	in, out, tcpIn, tcpOut := local.PortFor(t), local.PortFor(t), local.PortFor(t), local.PortFor(t)
	s := snapshot(
		rec(t, model.KindMesh, "/mesh", "{rootNamespace: istio-system, enableAutoMtls: true, defaultProviders: {metrics: [prometheus]}}"),
		rec(t, model.KindService, "b/server", fmt.Sprintf("{hosts: [server.b.svc.cluster.local], exportTo: ['*'], selector: {app: server}, addresses: [10.96.0.9], ports: [{name: http, number: %d, protocol: PROTOCOL_HTTP, targetNumber: %d}, {name: tcp, number: %d, protocol: PROTOCOL_TCP, targetNumber: %d}]}", out, in, tcpOut, tcpIn)),
		rec(t, model.KindEndpoints, "b/server-1", fmt.Sprintf("{hosts: [server.b.svc.cluster.local], ports: [{name: http, number: %d}, {name: tcp, number: %d}], endpoints: [{address: 127.0.0.1, labels: {app: server, version: v2}, namespace: b, workload: server-v2, cluster: west, serviceAccount: server, mtls: true}]}", in, tcpIn)),
		rec(t, model.KindSidecar, "a/s", fmt.Sprintf("egress: [{port: {number: %d, protocol: HTTP, name: x}, bind: 127.0.0.1, captureMode: NONE, hosts: ['b/*']}, {port: {number: %d, protocol: TCP, name: t}, bind: 127.0.0.1, captureMode: NONE, hosts: ['b/*']}]", out, tcpOut)),
		rec(t, model.KindSidecar, "b/s", fmt.Sprintf("{ingress: [{port: {number: %d, protocol: HTTP, name: x}, bind: 127.0.0.1, captureMode: NONE, defaultEndpoint: '127.0.0.1:%d'}, {port: {number: %d, protocol: TCP, name: t}, bind: 127.0.0.1, captureMode: NONE, defaultEndpoint: '127.0.0.1:%d'}], egress: [{hosts: ['~/*']}]}", in, backend, tcpIn, backend)),
	)
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
	server, client := run("b", "server", "app=server"), run("a", "client")
	get := func(port int, path string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
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
	get(out, "/")
	get(out, "/")
	get(out, "/missing")
	get(in, "/") // in the clear
	get(tcpOut, "/")

	web := istiometrics.Of("client-v1", "a", "east", map[string]string{"app": "client", "version": "v1"})
	backendOf := istiometrics.Of("server-v2", "b", "west", map[string]string{"app": "server", "version": "v2"})
	const from, to = `source_workload="client-v1"`, `destination_workload="server-v2"`
	sees := func(e *envoytest.Envoy, own istiometrics.Workload, want, metric string, labels ...string) {
		t.Helper()
		var lines []string
		again := time.NewTicker(20 * time.Millisecond) // Envoy merges histograms now and then
		defer again.Stop()
		for limit := time.Now().Add(envoytest.Patience); time.Now().Before(limit); <-again.C {
			if lines = istioPage(t, e, own); value(lines, metric, labels...) == want {
				return
			}
		}
		t.Fatalf("%s%v: %q, want %q, of\n%s", metric, labels, value(lines, metric, labels...), want, strings.Join(lines, "\n"))
	}
	ends := []string{`reporter="source"`, from, to, `source_workload_namespace="a"`, `source_canonical_service="client"`, `source_cluster="east"`, `destination_workload_namespace="b"`,
		`destination_canonical_service="server"`, `destination_canonical_revision="v2"`, `destination_cluster="west"`, `destination_service="server.b.svc.cluster.local"`,
		`destination_service_name="server"`, `destination_service_namespace="b"`, `source_principal="spiffe://cluster.local/ns/a/sa/client"`,
		`destination_principal="spiffe://cluster.local/ns/b/sa/server"`, `connection_security_policy="unknown"`, `response_flags="-"`}
	with := func(more ...string) []string { return append(append([]string(nil), ends...), more...) }
	sees(client, web, "2", istiometrics.Requests, with(`request_protocol="http"`, `response_code="200"`)...)
	sees(client, web, "1", istiometrics.Requests, with(`response_code="404"`)...)
	sees(client, web, "2", istiometrics.Duration+"_count", with(`response_code="200"`)...)
	sees(client, web, "2", istiometrics.Response+"_count", with(`response_code="200"`)...)
	sees(client, web, "1", istiometrics.Opened, with(`request_protocol="tcp"`)...)
	called := []string{`reporter="destination"`, `source_workload="client"`, `source_workload_namespace="a"`, to, `destination_canonical_service="server"`, `destination_service="server.b.svc.cluster.local"`,
		`destination_service_name="server"`, `source_principal="spiffe://cluster.local/ns/a/sa/client"`, `connection_security_policy="mutual_tls"`}
	sees(server, backendOf, "2", istiometrics.Requests, append(called, `response_code="200"`)...)
	sees(server, backendOf, "1", istiometrics.Closed, append(called, `request_protocol="tcp"`)...)
	sees(server, backendOf, "1", istiometrics.Requests, `reporter="destination"`, `source_workload="unknown"`, `source_principal="unknown"`, to, `connection_security_policy="none"`)
}
