package normal

import (
	"encoding/json"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// The rules by which istiod merges a shared mesh configuration.
func TestMergeMesh(t *testing.T) {
	for name, c := range map[string]struct{ shared, own, want string }{
		"nothing":                  {"", "", "{}"},
		"shared alone":             {"a: 1", "", "a: 1"},
		"own alone":                {"", "a: 1", "a: 1"},
		"a field as a whole":       {"localityLbSetting: {enabled: true, failover: [{from: a, to: b}]}", "localityLbSetting: {enabled: false}", "localityLbSetting: {enabled: false}"},
		"names of the proto file":  {"root_namespace: a\ntrustDomain: x", "rootNamespace: b\ntrust_domain: y", "rootNamespace: b\ntrustDomain: y"},
		"large numbers":            {"x: 12345678901234567890", "", "x: 12345678901234567890"},
		"the proxies' fields":      {"defaultConfig: {discoveryAddress: a, concurrency: 1, proxyMetadata: {A: '1', B: '1'}}", "defaultConfig: {concurrency: 2, proxyMetadata: {B: '2'}}", "defaultConfig: {discoveryAddress: a, concurrency: 2, proxyMetadata: {A: '1', B: '2'}}"},
		"default providers":        {"defaultProviders: {tracing: [a], metrics: [b]}", "defaultProviders: {tracing: [c]}", "defaultProviders: {tracing: [c], metrics: [b]}"},
		"providers by name":        {"extensionProviders: [{name: a, lightstep: {port: 1}}, {name: b, skywalking: {port: 1}}]", "extensionProviders: [{name: c}, {name: a, zipkin: {port: 2}}]", "extensionProviders: [{name: a, zipkin: {port: 2}}, {name: b, skywalking: {port: 1}}, {name: c}]"},
		"aliases of both":          {"trustDomainAliases: [c, a]", "trustDomainAliases: [b, a]", "trustDomainAliases: [a, b, c]"},
		"what is no message":       {"defaultConfig: {a: 1}", "defaultConfig: 5", "defaultConfig: 5"},
		"what is null stays as it": {"rootNamespace: a", "rootNamespace: null", "rootNamespace: null"},
	} {
		got, err := MergeMesh(c.shared, c.own)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var a, b any
		if json.Unmarshal([]byte(got), &a) != nil || yaml.Unmarshal([]byte(c.want), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, wrong := range []string{"[]", "a: {", "x"} {
		if _, err := MergeMesh(wrong, ""); err == nil {
			t.Errorf("shared %q is taken", wrong)
		}
		if _, err := MergeMesh("", wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
