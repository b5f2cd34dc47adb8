package normal

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// The hosts that need automatic addresses, their addresses in the status, and the addresses in the spec of a
// ServiceEntry.
func TestEntryAddresses(t *testing.T) {
	const status = "\nstatus: {addresses: [{value: '2001:2::5', host: db.example.com}, {value: 240.240.0.5, host: DB.example.com}, {value: x, host: db.example.com}, {value: 240.240.0.6, host: other.example.com}]}"
	for name, c := range map[string]struct {
		labels, spec, status, want string
	}{
		"DNS":                  {"{}", "{hosts: [DB.example.com, a.example.com], resolution: DNS}", "", "[a.example.com db.example.com] map[] []"},
		"STATIC":               {"{}", "{hosts: [db.example.com], resolution: STATIC}", "", "[db.example.com] map[] []"},
		"NONE":                 {"{}", "{hosts: [db.example.com]}", status, "[] map[] []"},
		"a wildcard":           {"{}", "{hosts: ['*.example.com', db.example.com], resolution: STATIC}", "", "[db.example.com] map[] []"},
		"addresses":            {"{}", "{hosts: [db.example.com], resolution: DNS, addresses: [240.240.0.9, '10.0.0.0/8']}", status, "[] map[] [240.240.0.9]"},
		"it says no":           {"{networking.istio.io/enable-autoallocate-ip: 'False'}", "{hosts: [db.example.com], resolution: DNS}", status, "[] map[] []"},
		"it says yes":          {"{networking.istio.io/enable-autoallocate-ip: 'true'}", "{hosts: [db.example.com], resolution: DNS}", "", "[db.example.com] map[] []"},
		"yes, without reason":  {"{networking.istio.io/enable-autoallocate-ip: 'true'}", "{hosts: [db.example.com], resolution: NONE}", "", "[] map[] []"},
		"a status":             {"{}", "{hosts: [db.example.com], resolution: DNS}", status, "[db.example.com] map[db.example.com:[240.240.0.5 2001:2::5]] []"},
		"an impossible status": {"{}", "{hosts: [db.example.com], resolution: DNS}", "\nstatus: {addresses: {}}", "[db.example.com] map[] []"},
		"not understood":       {"{}", "{hosts: [db.example.com], resolution: 7x}", "", "not understood"},
		"a host that is none":  {"{}", "{hosts: ['a b'], resolution: DNS}", "", "not understood"},
	} {
		obj := read(t, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: shop, labels: "+c.labels+"}\nspec: "+c.spec+c.status)
		obj.ID.Origin = origin.New("", origin.Kube)
		got := "not understood"
		if of, ok := EntryAddressesOf(obj); ok {
			got = fmt.Sprint(of.Hosts, of.Given, of.Stated)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	obj := read(t, istio("ServiceEntry", "{hosts: [db.example.com], resolution: DNS}")+status)
	obj.ID.Origin = origin.New("", origin.Files)
	if of, ok := EntryAddressesOf(obj); !ok || len(of.Given) > 0 {
		t.Errorf("a status in a file counts: %v", of)
	}
}

// A record has the addresses of those of its hosts that may have some, and is made again when they change.
func TestAutomaticRecords(t *testing.T) {
	id := AutomaticID("shop", "x")
	made, err := NewAutomatic("shop", "x", map[string][]string{"a.example.com": {"240.240.0.1", "2001:2::1"}, "gone.example.com": {"240.240.0.2"}})
	if err != nil || made.ID != id {
		t.Fatal(made.ID, err)
	}
	ctx := &fake{given: map[object.ID]map[string][]string{id: ParseAutomatic(made)}}
	with := New(Options{Automatic: []netip.Prefix{netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")}})
	for name, c := range map[string]struct {
		n    *Normalizer
		spec string
		want string
		refs bool
	}{
		"on":       {with, "{hosts: [b.example.com, A.example.com], resolution: DNS}", "[a.example.com: 240.240.0.1 2001:2::1]", true},
		"off":      {testNormal, "{hosts: [a.example.com], resolution: DNS}", "[]", false},
		"not one":  {with, "{hosts: [a.example.com]}", "[]", false},
		"its own":  {with, "{hosts: [a.example.com], resolution: DNS, addresses: [192.0.2.1]}", "[]", false},
		"not yet":  {with, "{hosts: [b.example.com], resolution: DNS}", "[]", true},
		"wildcard": {with, "{hosts: ['*.example.com'], resolution: STATIC}", "[]", false},
	} {
		obj := read(t, istio("ServiceEntry", c.spec))
		obj.ID.Name = "x"
		r := c.n.Object(obj, ctx)
		if len(r.Records) == 0 {
			t.Fatalf("%s: no records: %v", name, r.Problems)
		}
		got := []string{}
		for _, h := range r.Records[0].(*model.Service).Spec.Automatic {
			text := h.Host + ":"
			for _, a := range h.Addresses {
				text += " " + a
			}
			got = append(got, text)
		}
		if fmt.Sprint(got) != c.want || slices.Contains(r.Refs, id) != c.refs {
			t.Errorf("%s: %v, want %s; refs %v", name, got, c.want, r.Refs)
		}
	}
}
