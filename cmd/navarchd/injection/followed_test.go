package injection

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/status"
)

// ProxyConfigs have the content of the API server, the oldest first. One that becomes invalid keeps its last valid
// content, and those of other revisions are ignored.
func TestFollowedProxyConfigs(t *testing.T) {
	f := NewFollowedProxyConfigs(normal.New(normal.Options{}), "", slog.New(slog.DiscardHandler))
	key := func(name string) status.Key { return status.Key{Namespace: "shop", Name: name} }
	object := func(name, spec string) status.Found[unstructured.Unstructured] {
		u := &unstructured.Unstructured{}
		created := map[string]string{"a": "2026-02-01T00:00:00Z", "b": "2026-01-01T00:00:00Z"}[strings.TrimSuffix(name, ".other")]
		text := fmt.Sprintf("{apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {name: %s, namespace: shop, creationTimestamp: %q}, spec: %s}", name, created, spec)
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return status.Found[unstructured.Unstructured]{Object: u}
	}
	check := func(what string, want ...int32) {
		t.Helper()
		var got []int32
		for _, c := range f.In("shop") {
			got = append(got, c.GetConcurrency().GetValue())
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || len(f.In("other")) != 0 {
			t.Errorf("%s: concurrencies %v, want %v", what, got, want)
		}
	}
	check("at first")
	f.Replace(map[status.Key]status.Found[unstructured.Unstructured]{key("a"): object("a", "{concurrency: 1}"), key("b"): object("b", "{concurrency: 2}")})
	check("listed", 2, 1)
	f.Observe(key("a"), object("a", "{concurrency: 3}"))
	check("changed", 2, 3)
	f.Observe(key("a"), object("a", "{concurrency: -1}"))
	check("invalid", 2, 3)
	f.Replace(map[status.Key]status.Found[unstructured.Unstructured]{key("a"): object("a", "{concurrency: -1}")})
	check("listed, and invalid", 3)
	other := object("a", "{concurrency: 4}")
	other.Object.SetLabels(map[string]string{status.RevisionLabel: "canary"})
	f.Observe(key("a"), other)
	check("of another revision")
	f.Observe(key("a"), object("a", "{concurrency: 5}"))
	f.Observe(key("a"), status.Found[unstructured.Unstructured]{})
	check("deleted")
}
