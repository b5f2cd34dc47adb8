package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// envoyDump is the config_dump of a proxy that forwards port 80 to two endpoints.
const envoyDump = `{"configs": [
{"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [{"name": "0.0.0.0_80", "active_state": {"listener": {
 "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "0.0.0.0_80", "traffic_direction": "OUTBOUND",
 "address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}},
 "filter_chains": [{"filters": [{"name": "t", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
  "stat_prefix": "x", "cluster": "outbound|80||web.shop"}}]}]}}}]},
{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {
 "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "outbound|80||web.shop", "type": "EDS"}}]},
{"@type": "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump", "dynamic_endpoint_configs": [{"endpoint_config": {
 "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "outbound|80||web.shop", "endpoints": [{"lb_endpoints": [
 {"endpoint": {"address": {"socket_address": {"address": "10.1.0.1", "port_value": 80}}}},
 {"endpoint": {"address": {"socket_address": {"address": "10.1.0.2", "port_value": 80}}}}]}]}}]}]}`

// statuses is Envoy's /clusters, in which the first n endpoints of the cluster are ejected.
func statuses(n int) string {
	var hosts []string
	for i := range 2 {
		hosts = append(hosts, fmt.Sprintf(`{"address": {"socket_address": {"address": "10.1.0.%d", "port_value": 80}},
			"health_status": {"eds_health_status": "HEALTHY", "failed_outlier_check": %v}}`, i+1, i < n))
	}
	return `{"cluster_statuses": [{"name": "outbound|80||web.shop", "host_statuses": [` + strings.Join(hosts, ",") + `]}]}`
}

// envoyAnswers is the admin interface of that proxy's Envoy.
func envoyAnswers(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/clusters" {
		fmt.Fprint(w, statuses(1))
		return
	}
	fmt.Fprint(w, envoyDump)
}

// Which endpoints are ejected is read from the Envoy, a file, or the Envoy in the Pod. Otherwise it is unknown.
// Promise: why.md#ejected-endpoints
func TestEjectedEndpoints(t *testing.T) {
	envoy := httptest.NewServer(http.HandlerFunc(envoyAnswers))
	defer envoy.Close()
	at := strings.TrimPrefix(envoy.URL, "http://")
	folder := t.TempDir()
	files := map[string]string{"dump.json": envoyDump, "none": statuses(0), "all": statuses(2), "odd": "x"}
	for name, content := range files {
		files[name] = filepath.Join(folder, name)
		if err := os.WriteFile(files[name], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := replicas(t)
	const one, unknown = "ejected by Envoy at present: 10.1.0.1:80 (outlier detection)", "it is unknown which endpoints are ejected"
	for _, c := range []struct {
		args         []string
		want, absent string
	}{
		{[]string{"--envoy", at, "--from", "x"}, one, unknown},
		{[]string{"--kubeconfig", kubeconfig, "--from", "web-0.shop"}, one, unknown},
		{[]string{"--kubeconfig", kubeconfig, "--from", "web.0.shop"}, one, unknown},
		{[]string{"--from", files["dump.json"], "--clusters", files["all"]},
			"all endpoints of outbound|80||web.shop are ejected: the connection is closed with flag UH, or Envoy uses them all", unknown},
		{[]string{"--from", files["dump.json"], "--clusters", files["none"]}, "confidence: likely (failed connections", "ejected by Envoy"},
		{[]string{"--from", files["dump.json"]}, unknown, "ejected by Envoy"},
		{[]string{"--from", files["dump.json"], "-o", "json"}, `"ejected_known": false`, `"ejected": [`},
		{[]string{"--envoy", at, "--from", "x", "-o", "json"}, `"ejected_known": true`, unknown},
	} {
		out, _, err := ran(append([]string{"why", "http://web.shop:80/", "--address", "10.96.0.1"}, c.args...)...)
		if err != nil || !strings.Contains(out, c.want) || strings.Contains(out, c.absent) {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
	_, _, err := ran("why", "http://web.shop:80/", "--from", files["dump.json"], "--clusters", files["odd"])
	if err == nil || !strings.Contains(err.Error(), "--clusters "+files["odd"]) {
		t.Errorf("a file that has no clusters: %v", err)
	}
	const line = `[2024-01-01T00:00:00.000Z] "GET / HTTP/1.1" 503 UH no_healthy_upstream - "-" 0 19 0 - ` +
		`"-" "-" "-" "web.shop" "-" - - - - - -`
	for _, args := range [][]string{{"--flags", "UH"}, {"--log", line}} {
		if _, _, err := ran("why", args[0], args[1]); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		_, _, err := ran("why", args[0], args[1], "--clusters", files["none"])
		if err == nil || !strings.Contains(err.Error(), "--clusters is for a request that is followed") {
			t.Errorf("%v, and no request is followed: %v", args, err)
		}
	}
}
