package compare

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Dots and brackets in the key of a list element belong to the key, not to the path.
func TestLastField(t *testing.T) {
	for path, want := range map[string]string{
		"": "", ".name": "name", ".a.b": "b", ".routes[3].match": "match", ".routes[3]": "routes[3]",
		".virtual_hosts[web.shop.svc.cluster.local:80]":           "virtual_hosts[web.shop.svc.cluster.local:80]",
		".virtual_hosts[web.shop.svc.cluster.local:80].domains":   "domains",
		`.filter_chains[{"server_names":["a.b"]}]`:                `filter_chains[{"server_names":["a.b"]}]`,
		`.filter_chains[{"server_names":["a.b"]}].filters[x.y]`:   "filters[x.y]",
		`.headers[{"regex":"[^]\".]*"}].value`:                    "value",
		`.lb_endpoints[{"address":"10.0.0.1"}].endpoint.hostname`: "hostname",
	} {
		if got := lastField(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// Identities of both sides are compared in time that does not grow with their product.
func TestManyIdentities(t *testing.T) {
	list := func(prefix string) (all []any) {
		for i := range 50_000 {
			all = append(all, fmt.Sprintf("spiffe://cluster.local/ns/%s%d/sa/a", prefix, i))
		}
		return all
	}
	began := time.Now()
	got := identitiesOf(".principals", append(list("both"), list("theirs")...), append(list("both"), list("ours")...))
	if minus, plus := strings.Count(got, "-"), strings.Count(got, "+"); minus != 50_000 || plus != 50_000 {
		t.Errorf("%d and %d identities differ", minus, plus)
	}
	if took := time.Since(began); took > 5*time.Second { // 20 s if each is compared with all
		t.Errorf("took %v", took)
	}
}
