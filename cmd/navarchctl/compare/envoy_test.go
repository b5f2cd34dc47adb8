package compare

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
)

// assignments beside those of the example: several priorities, weights, localities without endpoints, health.
var assignments = []string{
	`{"cluster_name": "weights", "endpoints": [{"locality": {"region": "a"}, "load_balancing_weight": 3, "lb_endpoints": [` + socket("10.9.0.1") +
		`]}, {"locality": {"region": "b"}, "load_balancing_weight": 1, "priority": 1, "lb_endpoints": [` + socket("10.9.0.2") + `]}]}`,
	`{"cluster_name": "none"}`,
	`{"cluster_name": "health", "endpoints": [{"lb_endpoints": [{"health_status": "DRAINING", "load_balancing_weight": 5, "endpoint":
		{"address": {"socket_address": {"address": "10.9.0.3", "port_value": 80}}}}]}]}`,
}

func socket(address string) string {
	return `{"endpoint": {"address": {"socket_address": {"address": "` + address + `", "port_value": 80}}}}`
}

// fromFile returns a source of configuration.
func fromFile(path string) map[string]any {
	return map[string]any{"resource_api_version": "V3", "path_config_source": map[string]any{"path": path}}
}

// Envoy's dump of an assignment is equal to the assignment.
func TestEnvoyDumpsAssignments(t *testing.T) {
	binary := envoytest.Binary(t)
	ours := slices.DeleteFunc(example(t)[1], func(r resource) bool { return r.t != xds.Endpoint })
	for _, raw := range assignments {
		var named struct {
			Name string `json:"cluster_name"`
		}
		if err := json.Unmarshal([]byte(raw), &named); err != nil {
			t.Fatal(err)
		}
		ours = append(ours, resource{xds.Endpoint, named.Name, json.RawMessage(raw)})
	}
	folder := t.TempDir()
	write := func(name string, resources []any) string {
		text, err := json.Marshal(map[string]any{"version_info": "1", "resources": resources})
		path := filepath.Join(folder, name)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	var clusters []any
	for i, r := range ours {
		var fields map[string]any
		if err := json.Unmarshal(r.raw, &fields); err != nil {
			t.Fatal(err)
		}
		fields["@type"] = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
		eds := write(fmt.Sprint(i, ".json"), []any{fields})
		c := map[string]any{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": r.name,
			"type": "EDS", "connect_timeout": "1s", "eds_cluster_config": map[string]any{"eds_config": fromFile(eds)}}
		if r.name == "weights" {
			c["common_lb_config"] = map[string]any{"locality_weighted_lb_config": map[string]any{}}
		}
		clusters = append(clusters, c)
	}
	cds := write("cds.json", clusters)
	envoy := envoytest.StartVersion(t, binary, envoytest.Bootstrap{
		"node":              map[string]any{"id": "sidecar~127.0.0.1~web.default~x", "cluster": "web"},
		"dynamic_resources": map[string]any{"cds_config": fromFile(cds)}})
	envoy.Live()
	text, err := envoy.Get("/config_dump?include_eds")
	if err != nil {
		t.Fatal(err)
	}
	c := New(ours, false, Most)
	err = dump.NewStream(strings.NewReader(text)).Next(dump.Visitor{Node: func(json.RawMessage) error { return nil },
		Section:  func(t xds.Type) error { c.Section(t); return nil },
		Resource: func(r dump.Resource) error { return c.Add(r.Type, r.Name, r.Raw) }})
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Result()
	if err != nil || result.Resources["endpoints"].Equal != len(ours) {
		t.Errorf("%v: %+v of %d: %+v", err, result.Resources["endpoints"], len(ours), result.Notes)
		for _, f := range result.Findings {
			if f.Type == "endpoints" {
				t.Errorf("%s %s: %s, %s", f.Resource, f.Path, f.Istiod, f.Navarch)
			}
		}
	}
}
