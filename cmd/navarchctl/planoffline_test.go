package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/problem"
)

// A plan of a folder marks an object as refused if the webhook would refuse it as a new object, although the object
// would be applied if it were stored. The reason is an error, as in the webhook's answer. The deletion of such an
// object is not refused.
func TestPlanOfAFolderRefusesAsTheWebhook(t *testing.T) {
	const dynamic = "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: web, namespace: shop}, spec: {hosts: [web.example], " +
		"resolution: DYNAMIC_DNS, ports: [{number: 80, name: http, protocol: HTTP}]}}\n"
	const static = "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: web, namespace: shop}, spec: {hosts: [web.example], " +
		"resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}}\n"
	const dryRun = "{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: web, namespace: shop, " +
		"annotations: {istio.io/dry-run: 'true'}}, spec: {mtls: {mode: STRICT}}}\n"
	node, err := filepath.Abs("../../deploy/demo/node.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, before, change string
		remove               bool
		want                 preview.Act
		field                string // of the error
	}{
		{"a wildcard's resolution", static, dynamic, false, preview.Refused, "spec.hosts[0]"},
		{"a dry run", static, dryRun, false, preview.Refused, "metadata.annotations[istio.io/dry-run]"},
		{"nothing to refuse", dryRun, static, false, preview.Created, ""},
		{"a deletion", dynamic, dynamic, true, preview.Deleted, ""},
	} {
		dir := t.TempDir()
		file := filepath.Join(t.TempDir(), "change.yaml")
		for path, text := range map[string]string{filepath.Join(dir, "a.yaml"): c.before, file: c.change} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := planning{files: []string{file}, remove: c.remove, proxies: []string{node},
			from: offline{configDir: dir, cluster: "Kubernetes", domain: "cluster.local"}}
		change, err := p.read(nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.offline(t.Context(), &change, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Objects) != 1 || r.Objects[0].Act != c.want || r.Refused() != (c.want == preview.Refused) {
			t.Fatalf("%s: %+v", c.name, r.Objects)
		}
		var errors []string
		for _, one := range r.Objects[0].Problems {
			if one.Severity == problem.Error {
				errors = append(errors, one.Field)
			}
		}
		if c.field == "" && len(errors) > 0 || c.field != "" && (len(errors) != 1 || errors[0] != c.field) {
			t.Errorf("%s: %+v", c.name, r.Objects[0].Problems)
		}
	}
}
