package normal

import (
	"fmt"
	"strings"
	"testing"
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
