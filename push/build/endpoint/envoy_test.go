package endpoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/push/envoytest"
)

// Envoy uses an address once, however often an assignment states it. So an assignment that states it once has the
// effect of istiod's, which repeats the endpoints of a ServiceEntry for each of its addresses
// (deploy/fidelity/differences.txt).
func TestEnvoyUsesAnAddressOnce(t *testing.T) {
	type object = map[string]any
	at := func(port int) object {
		return object{"endpoint": object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}}, "load_balancing_weight": 1}
	}
	zone := func(name string, ports ...int) object {
		var all []object
		for _, port := range ports {
			all = append(all, at(port))
		}
		return object{"locality": object{"region": "r", "zone": name}, "lb_endpoints": all, "load_balancing_weight": len(ports)}
	}
	stated := func(zones ...object) (hosts int) {
		text, err := json.Marshal(object{"resources": []object{{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
			"cluster_name": "web", "endpoints": zones}}})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "web.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		e := envoytest.Start(t, envoytest.Bootstrap{"node": object{"id": "web", "cluster": "web"}, "static_resources": object{"clusters": []object{{
			"name": "web", "type": "EDS", "connect_timeout": "1s",
			"eds_cluster_config": object{"eds_config": object{"resource_api_version": "V3", "path_config_source": object{"path": path}}}}}}})
		e.Live()
		page, err := e.Get("/clusters?format=json")
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Clusters []struct {
				Hosts []object `json:"host_statuses"`
			} `json:"cluster_statuses"`
		}
		if err := json.Unmarshal([]byte(page), &got); err != nil || len(got.Clusters) != 1 {
			t.Fatalf("%v: %s", err, page)
		}
		return len(got.Clusters[0].Hosts)
	}
	if n := stated(zone("a", 8001, 8001, 8002, 8002), zone("b", 8003, 8003)); n != 3 {
		t.Errorf("Envoy has %d endpoints, want 3", n)
	}
	if n := stated(zone("a", 8001, 8002), zone("b", 8003, 8004)); n != 4 { // the page can be read
		t.Errorf("Envoy has %d endpoints, want 4", n)
	}
}
