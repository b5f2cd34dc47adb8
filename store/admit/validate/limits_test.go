package validate

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
)

// repeated returns n elements, in each of which # is the element's number.
func repeated(n int, element string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(element, "#", fmt.Sprint(i))
	}
	return strings.Join(all, ",")
}

// An object of 100,000 values, the limit of reviews, is validated with few allocations for each value.
// Promise: security-admission.md#expensive-objects
func TestObjectsAtTheLimit(t *testing.T) {
	const route = `"route": [{"destination": {"host": "a"}}]`
	rules := func(n int, more string) string {
		return `{"hosts": ["*.com"], "http": [` + repeated(n, "{"+more+", "+route+"}") + `]}`
	}
	for name, c := range map[string]struct {
		kind, spec string
		allowed    bool
	}{
		"header conditions": {"VirtualService", rules(1, `"match": [{"headers": {`+repeated(49_000, `"h#": {"exact": "a"}`)+`}}]`), true},
		"matches":           {"VirtualService", rules(1, `"match": [`+repeated(33_000, `{"uri": {"prefix": "/p#"}}`)+`]`), true},
		"rules":             {"VirtualService", rules(11_000, `"match": [{"uri": {"prefix": "/p#"}}]`), true},
		"expressions":       {"VirtualService", rules(1, `"match": [`+repeated(33_000, `{"uri": {"regex": "/p#"}}`)+`]`), false},
		"rewrites":          {"VirtualService", rules(9_000, `"rewrite": {"uriRegexRewrite": {"match": "(\\\\pL|#)*", "rewrite": "a"}}`), false},
		"names of servers": {"VirtualService", `{"hosts": ["*.com"], "tls": [` + repeated(11_000, `{"match": [{"sniHosts": ["a#.com"]}], `+route+`}`) +
			`]}`, true},
		"subsets": {"DestinationRule", `{"host": "a", "subsets": [` + repeated(11_000, `{"name": "s#", "trafficPolicy": {"connectionPool": {"http": {"maxRetries": 1, "idleTimeout": "3s"}, "tcp": {"connectTimeout": "1s"}}}}`) +
			`]}`, true},
		"servers": {"Gateway", `{"selector": {"a": "b"}, "servers": [` + repeated(14_000, `{"port": {"number": 80, "name": "a#", "protocol": "HTTP"}, "hosts": ["a#.com"]}`) +
			`]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := webhook(), creation(t, []byte(of(c.kind, c.spec)))
			w.Admit(t.Context(), Path, creation(t, []byte(of(c.kind, `{}`)))) // compiles the definition
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			got := w.Admit(t.Context(), Path, r)
			goruntime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; got.Allowed != c.allowed || took > 400<<20 {
				t.Errorf("allowed %v, %d MB: %.300v", got.Allowed, took>>20, got.Result)
			}
		})
	}
}

// A Telemetry with more tags than the limit is refused before its rules are evaluated.
// Promise: security-admission.md#expensive-objects
func TestManyTags(t *testing.T) {
	telemetry := func(n int) []byte {
		text := of("Telemetry", `{"metrics": [{"overrides": [{"tagOverrides": {"x": {"value": "a"}}}, {"tagOverrides": {`+
			repeated(n-1, `"t#": {"value": "a"}`)+`}}]}]}`)
		return []byte(strings.Replace(text, "networking.istio.io/v1", "telemetry.istio.io/v1", 1))
	}
	if got := webhook().Admit(t.Context(), Path, creation(t, telemetry(maxTags))); !got.Allowed {
		t.Errorf("%.300v", got.Result)
	}
	got := webhook().Admit(t.Context(), Path, creation(t, telemetry(maxTags+1)))
	if got.Allowed || !strings.Contains(got.Result.Message, "spec.metrics: has 4097 tagOverrides: at most 4096") {
		t.Errorf("%.300v", got.Result)
	}
}
