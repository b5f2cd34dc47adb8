package dump

import (
	"os"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"navarch.io/navarch/push/xds"
)

// A resource that cannot be parsed, or that has unknown extensions, does not affect the others; its raw text is kept.
func TestReadKeepsWhatItDoesNotKnow(t *testing.T) {
	d, err := Read([]byte(`{"configs": [{"@type": "type.googleapis.com/acme.Section"}, 7, {"@type": "x/envoy.admin.v3.ClustersConfigDump",
		"dynamicActiveClusters": [null, {"cluster": {"name": "odd", "type": {}}}, {"cluster": null, "errorState": {"details": "withheld: why", "versionInfo": "2",
			"failedConfiguration": {"name": "none"}}},
			{"versionInfo": "1", "cluster": {"name": "new", "upstream_config": {"typed_config": {"@type": "acme.Thing", "a": {"b": [1]}}}, "unheard": {}}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	all := d.Resources[xds.Cluster]
	if len(all) != 4 || !d.Has[xds.Cluster] || d.Has[xds.Route] {
		t.Fatalf("%+v", d)
	}
	if second := all[1]; second.Name != "odd" || second.Problem == nil || second.Message != nil || second.Raw == nil {
		t.Errorf("one that cannot be read: %+v", second)
	}
	if none := all[2]; none.Name != "none" || none.Raw != nil || none.Failure == nil || !none.Failure.Withheld || none.Failure.Version != "2" {
		t.Errorf("one that the proxy has none of: %+v %+v", none, none.Failure)
	}
	if one := all[3]; one.Problem != nil || one.Message.(*clusterv3.Cluster).GetName() != "new" || one.Version != "1" || !strings.Contains(string(one.Raw), `"unheard"`) {
		t.Errorf("one of a newer proxy: %+v", one)
	}
}

// Whatever the file contains, Read returns a dump or an error.
func FuzzRead(f *testing.F) {
	for _, file := range []string{"../testdata/envoy.txtar", "../testdata/tables.txtar"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(raw), "\n-- ") {
			if _, body, ok := strings.Cut(part, "--\n"); ok && strings.HasPrefix(body, "{") {
				f.Add([]byte(body))
			}
		}
	}
	f.Add([]byte(`{"configs": [{"@type": "envoy.admin.v3.SecretsConfigDump", "dynamic_warming_secrets": [{"error_state": {"failed_configuration": {"name": 1}}}]}]}`))
	f.Add([]byte(`{"configs": [{"@type": "envoy.admin.v3.SecretsConfigDump", "dynamic_warming_secrets": [{"name": "a", "error_state": {"details": "b"},
		"secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "a"}}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := Read(raw)
		if (d == nil) != (err != nil) {
			t.Fatalf("a dump and an error, or neither: %v", err)
		}
		if err != nil {
			return
		}
		for kind, all := range d.Resources {
			for _, r := range all {
				if int(r.Type) != kind || r.Message != nil && (r.Raw == nil || r.Problem != nil) {
					t.Fatalf("%d: %+v", kind, r)
				}
			}
		}
	})
}
