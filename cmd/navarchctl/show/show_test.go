package show

import (
	"encoding/json"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/push/xds"
)

// Text of the configuration cannot control a terminal, and does not shift the columns beside it.
func TestTableIsPrintable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, [][]string{{"A", "B"}, {"x\x1b[2J\t\"y\"\n", "ü"}, {"\x9b2J", "\ufffd"}}); err != nil {
		t.Fatal(err)
	}
	if want := "A                 B\nx\\x1b[2J\\t\"y\"\\n   ü\n\\x9b2J            \ufffd\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// The tables of any dump can be printed, with and without filters.
func FuzzConfig(f *testing.F) {
	for _, section := range []string{"Clusters", "Endpoints", "Listeners", "Routes", "Secrets"} {
		f.Add([]byte(`{"configs": [{"@type": "envoy.admin.v3.` + section + `ConfigDump",
			"dynamic_active_clusters": [{"cluster": {"name": "outbound|1|a|b"}}], "dynamic_endpoint_configs": [{"endpoint_config": {"endpoints": [{"lb_endpoints": [{}]}]}}],
			"dynamic_listeners": [{"active_state": {"listener": {"default_filter_chain": {"filters": [{}]}}}}], "dynamic_route_configs": [{"route_config": {"virtual_hosts": [{"routes": [{}]}]}}],
			"dynamic_active_secrets": [{"secret": {"tls_certificate": {"certificate_chain": {"inline_string": "x"}}}}]}]}`))
	}
	f.Add([]byte(`{"configs": [{"@type": "envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {"name": "\u001b[2J\u009b"},
		"error_state": {"details": "\r\u0007", "version_info": "\u001b"}}, {"cluster": {"name": "\u001b", "type": {"\u001b": 1}}}]}]}`))
	f.Add([]byte(`{"cluster_statuses": [{"host_statuses": [{}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := dump.Read(raw)
		if err != nil {
			return
		}
		for kind := range xds.NumTypes {
			for _, filter := range []Filter{{}, {FQDN: "a", Subset: "b", Direction: "c", Port: 1, Name: "d", Address: "e", Type: "f", Cluster: "g", Status: "h"}} {
				for _, r := range d.Resources[kind] {
					if narrow := Narrowed(r, filter); (narrow == nil) != (r.Raw == nil) || narrow != nil && !json.Valid(narrow) {
						t.Fatalf("%s: %s", r.Name, narrow)
					}
				}
				var b strings.Builder
				if err := Config(&b, d, kind, filter, true); err != nil {
					t.Fatal(err)
				}
				if strings.ContainsAny(b.String(), "\x1b\r\a\u009b") {
					t.Fatalf("a command to the terminal: %q", b.String())
				}
			}
		}
	})
}
