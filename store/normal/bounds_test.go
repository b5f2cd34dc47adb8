package normal

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/problem"
)

// Lists of locality settings are bounded, because each endpoint of the host is compared with them. At the bounds the
// rule applies.
// Promise: validation.md#where-istios-webhook-and-ours-differ
func TestLocalityBounds(t *testing.T) {
	list := func(n int, format string) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, format+",", i)
		}
		return all.String()
	}
	const locality, zones = "spec.trafficPolicy.loadBalancer.localityLbSetting", "spec.trafficPolicy.loadBalancer.zoneAwareLbSetting"
	zoned := func(s string) string {
		return "{host: a, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {" + s + "}}}}"
	}
	for _, c := range []struct {
		of            func(string) string
		format, field string
		most          int
	}{
		{ruleFor, "failoverPriority: [%s]|l%d", locality + ".failoverPriority", maxPriorityLabels},
		{zoned, "failoverPriority: [%s]|l%d", zones + ".failoverPriority", maxPriorityLabels},
		{ruleFor, "failover: [%s]|{from: r%d, to: a}", locality + ".failover", maxFailovers},
		{ruleFor, "distribute: [%s]|{from: r%d, to: {a: 100}}", locality + ".distribute", maxFailovers},
		{ruleFor, "distribute: [{from: a, to: {%s}}]|r%d: 1", locality + ".distribute", maxDistributed},
	} {
		outer, inner, _ := strings.Cut(c.format, "|")
		for n, valid := range map[int]bool{c.most: true, c.most + 1: false, 20_000: false} {
			r := testNormal.Object(read(t, istio("DestinationRule", c.of(fmt.Sprintf(outer, list(n, inner))))), &fake{})
			if r.Spoiled == valid || !valid && r.Problems[0].Field != c.field || valid && len(r.Problems) > 0 {
				t.Errorf("%s with %d elements: spoiled %v, %v", c.field, n, r.Spoiled, r.Problems)
			}
		}
	}
}

// A ServiceEntry has at most maxAddresses addresses.
// Promise: validation.md#where-istios-webhook-and-ours-differ
func TestAddressesAreBounded(t *testing.T) {
	for n, valid := range map[int]bool{maxAddresses: true, maxAddresses + 1: false, 20_000: false} {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, "241.0.%d.%d,", i/250, i%250)
		}
		spec := "{hosts: [a.com], addresses: [" + all.String() + "], ports: [{number: 80, name: a, protocol: HTTP}], resolution: DNS}"
		r := testNormal.Object(read(t, istio("ServiceEntry", spec)), &fake{})
		if r.Spoiled == valid || !valid && r.Problems[0].Field != "spec.addresses" {
			t.Errorf("%d addresses: spoiled %v, %v", n, r.Spoiled, r.Problems)
		}
	}
}

// Expressions of one object are not parsed beyond a bound. One error says so.
// Promise: security-admission.md#expensive-objects
func TestExpressionsAreBounded(t *testing.T) {
	many := func(n int, of string) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	match := func(pattern string) string { return "{uri: {regex: '" + pattern + "'}}" }
	routes := func(matches string) string {
		return "{hosts: [a], http: [{match: [" + matches + "], route: [{destination: {host: a}}]}]}"
	}
	logged := func(expression string) string { return "{filter: {expression: '" + expression + "'}}" }
	for _, c := range []struct {
		kind, spec, field string // field: of the only error; empty: valid
	}{
		{"VirtualService", routes(many(900, match("^/api/v[0-9]+/[a-z]+(/.*)?$"))), ""},
		{"VirtualService", routes(many(2000, match(`(?i)[B-\x{1e942}]`))), "spec.http[0].match[19].uri.regex"},
		{"VirtualService", routes(many(3000, match(`\pL\pNaa`))), "spec.http[0].match[2525].uri.regex"},
		{"Telemetry", "{accessLogging: [" + many(20, logged("response.code >= 400")) + "]}", ""},
		{"Telemetry", "{accessLogging: [" + many(20, logged("\""+strings.Repeat("x", 10_000)+"\" == request.host")) + "]}", "spec.accessLogging[6].filter.expression"},
	} {
		text := istio(c.kind, c.spec)
		if c.kind == "Telemetry" {
			text = strings.Replace(text, "networking.istio.io/v1", "telemetry.istio.io/v1", 1)
		}
		r := testNormal.Object(read(t, text), &fake{})
		var errors []string
		for _, p := range r.Problems {
			if p.Severity == problem.Error {
				errors = append(errors, p.Field)
			}
		}
		if got := strings.Join(errors, " "); got != c.field {
			t.Errorf("%s, %.80s: errors %.300s, want %s", c.kind, c.spec, got, c.field)
		}
	}
}

// Comparisons of matches with earlier ones end at a bound, and warnings of earlier rules remain.
// Promise: security-admission.md#expensive-objects
func TestComparisonsAreBounded(t *testing.T) {
	compared := 0
	known := earlier[*networkingv1.TLSMatchAttributes]{}
	covers := func(a, b *networkingv1.TLSMatchAttributes) bool {
		compared++
		return same(a, b)
	}
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("name-%d.example.com", i))
	}
	r := &report{}
	for i := range 20_000 {
		matches := []*networkingv1.TLSMatchAttributes{{SniHosts: append(names[:100:100], fmt.Sprint("own-", max(i, 1)))}}
		unused(r, fmt.Sprintf("spec.tls[%d]", i), matches, &known, covers)
		known.all = cover(known.all, i, matches, &networkingv1.TLSMatchAttributes{}, same)
	}
	if compared > 20_000 || len(r.problems) != 2 || r.problems[1].Field != "spec.tls[1]" {
		t.Errorf("%d comparisons, %v", compared, r.problems)
	}
}
