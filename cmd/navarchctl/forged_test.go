package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"navarch.io/navarch/cmd/internal/fleetapi"
)

// hostileDump is a config_dump whose names are all hostile. Port 80 has a route and one that does not match; at port 90
// a policy refuses the request.
const hostileDump = `{"configs": [
{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": "sidecar~10.1.0.1~web-0.shop~x",
 "metadata": {"NAMESPACE": "shop", "SERVICE_ACCOUNT": "webEVIL"}}}},
{"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [
 {"name": "l", "active_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "EVIL",
  "address": {"socket_address": {"address": "10.1.0.1", "port_value": 80}}, "filter_chains": [{"name": "EVIL", "filters": [{"name": "EVIL", "typed_config": {
  "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "x",
  "rds": {"route_config_name": "80EVIL"}, "http_filters": [{"name": "router"}]}}]}]}}},
 {"name": "m", "active_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "mEVIL",
  "address": {"socket_address": {"address": "10.1.0.1", "port_value": 90}}, "filter_chains": [{"name": "EVIL", "filters": [{"name": "EVIL", "typed_config": {
  "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "x",
  "rds": {"route_config_name": "80EVIL"}, "http_filters": [{"name": "rbac", "typed_config": {
   "@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC", "rules": {"action": "DENY", "policies": {"ns[shop]-policy[EVIL]-rule[0]": {
   "permissions": [{"any": true}], "principals": [{"any": true}]}}}}}, {"name": "luaEVIL"}]}}]}]}}}]},
{"@type": "type.googleapis.com/envoy.admin.v3.RoutesConfigDump", "dynamic_route_configs": [{"route_config": {
 "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "80EVIL", "virtual_hosts": [{"name": "EVIL", "domains": ["*"], "routes": [
 {"name": "EVIL", "match": {"prefix": "/", "headers": [{"name": "xEVIL", "string_match": {"exact": "EVIL"}}]}, "route": {"cluster": "c"}},
 {"name": "EVIL", "match": {"prefix": "/"}, "route": {"cluster": "cEVIL", "timeout": "3s"}}]}]}}]},
{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {
 "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "cEVIL", "type": "EDS"}}]},
{"@type": "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump", "dynamic_endpoint_configs": [{"endpoint_config": {
 "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "cEVIL", "endpoints": [{"lb_endpoints": [
 {"endpoint": {"address": {"pipe": {"path": "/EVIL"}}}}]}]}}]}]}`

const hostileCases = `{"cases": [
{"name": "EVIL", "to": "x", "request": {"url": "http://a.example:90/", "address": "10.1.0.1:90"}, "want": {"outcome": "forwarded", "policy": "EVIL"}},
{"name": "pEVIL", "to": "x", "request": {"url": "http://a.example/", "address": "10.1.0.1:80", "headers": {"b": "EVIL"}}, "want": {"outcome": "forwarded", "cluster": "EVIL"}}]}`

const hostileDescription = `{"items": [{"objects": [{"object": "Service shop/EVIL", "facts": [{"subject": "EVIL", "text": "EVIL", "by": ["EVIL"]}]}],
"groups": [{"side": "inbound", "proxies": ["EVIL"], "total": 1, "sections": [{"name": "EVIL", "facts": [{"subject": "EVIL", "text": "EVIL", "by": ["EVIL"]}]}]}],
"more": ["EVIL"]}], "partial": [{"replica": "EVIL", "reason": "EVIL"}]}`

// No name in a configuration or an answer forges a line of why, authz check, who-can, test or describe.
func TestNamesForgeNoLines(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(content, "EVIL", evil)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := hostileDescription
		if r.URL.Path != fleetapi.Root+"describe" {
			body = `{"items": []}`
		}
		fmt.Fprint(w, strings.ReplaceAll(body, "EVIL", evil))
	}))
	defer web.Close()
	real, err := strconv.Unquote(`"` + evil + `"`)
	if err != nil {
		t.Fatal(err)
	}
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, real, http.StatusInternalServerError)
	}))
	defer failing.Close()
	dump, cases, server := file("dump.json", hostileDump), file("cases.json", hostileCases), strings.TrimPrefix(web.URL, "http://")
	clusters := file("clusters.json", `{"cluster_statuses": [{"name": "cEVIL", "host_statuses": [{"address": {"pipe": {"path": "/EVIL"}},
		"health_status": {"failed_outlier_check": true}}]}]}`)
	for _, c := range []struct {
		args    []string
		escaped int // texts that are escaped, at least
	}{
		{[]string{"why", "--to", dump, "--clusters", clusters, "--address", "10.1.0.1", "http://a.example/"}, 6},
		{[]string{"why", "--to", dump, "--address", "10.1.0.1:90", "http://a.example/"}, 3},
		{[]string{"authz", "check", "--to", dump, "--port", "90", "GET", "/"}, 1},
		{[]string{"who-can", "--to", dump, "--port", "90", "GET", "/"}, 0},
		{[]string{"test", "-f", dump, cases}, 3},
		{[]string{"describe", "service", "web.shop", "--server", server}, 6},
		{[]string{"describe", "service", "web.shop", "--server", strings.TrimPrefix(failing.URL, "http://")}, 1},
	} {
		out, warnings, err := ran(c.args...)
		text := out + warnings
		if strings.Contains(fmt.Sprint(err), `\x1b`) {
			text += fmt.Sprintln(err)
		}
		if lines := forged(text); len(lines) > 0 {
			t.Errorf("%v: the lines %q in\n%s", c.args, lines, text)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
			t.Errorf("%v: unprintable: %q", c.args, text)
		}
		if n := strings.Count(text, `\nFORGED`); n < c.escaped {
			t.Errorf("%v: %v, %d escaped texts, want %d:\n%s", c.args, err, n, c.escaped, text)
		}
	}
}
