package dns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/agentapi"
)

func addrs(text ...string) (out []netip.Addr) {
	for _, s := range text {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// shop is the place of the Pods of these tests.
var shop = Place{Namespace: "shop", Domain: "svc.cluster.local", Search: "shop.svc.cluster.local"}

func meshNames() []agentapi.Name {
	k := agentapi.RegistryKubernetes
	return []agentapi.Name{
		{Host: "web.shop.svc.cluster.local", Addresses: addrs("10.0.0.1", "fd00::1"), Registry: k, Shortname: "web", Namespace: "shop"},
		{Host: "web.other.svc.cluster.local", Addresses: addrs("10.0.0.2"), Registry: k, Shortname: "web", Namespace: "other"},
		{Host: "db.shop.svc.cluster.local", Addresses: addrs("10.1.0.1", "10.1.0.2"), Registry: k, Shortname: "db", Namespace: "shop"},
		{Host: "db-0.db.shop.svc.cluster.local", Addresses: addrs("10.1.0.1"), Registry: k, Shortname: "db-0.db", Namespace: "shop"},
		{Host: "far.shop.svc.remote.example", Addresses: addrs("10.0.0.9"), Registry: k, Shortname: "far", Namespace: "shop"},
		{Host: "pay.example.org", Addresses: addrs("240.240.0.1"), Registry: "External"},
		{Host: "single", Addresses: addrs("240.240.0.2"), Registry: "External"},
		{Host: "*.example.com", Addresses: addrs("240.240.0.3"), Registry: "External"},
		{Host: "*.deep.example.com", Addresses: addrs("240.240.0.4"), Registry: "External"},
		// A ServiceEntry may have a name like a Service's; its short form names no host.
		{Host: "entry.shop.svc.cluster.local", Addresses: addrs("240.240.0.5"), Registry: "External"},
	}
}

func TestLookup(t *testing.T) {
	table := newTable(meshNames(), shop)
	if table.Len() != len(meshNames()) {
		t.Errorf("%d names", table.Len())
	}
	for name, want := range map[string]string{
		"web.shop.svc.cluster.local":   "10.0.0.1",
		"web":                          "10.0.0.1",
		"web.shop":                     "10.0.0.1",
		"web.shop.svc":                 "10.0.0.1",
		"web.other":                    "10.0.0.2",
		"web.other.svc":                "10.0.0.2",
		"db-0.db":                      "10.1.0.1",
		"db-0.db.shop":                 "10.1.0.1",
		"db-0.db.shop.svc":             "10.1.0.1",
		"db":                           "10.1.0.1 10.1.0.2",
		"far":                          "none",
		"far.shop":                     "none",
		"pay.example.org":              "240.240.0.1",
		"single":                       "240.240.0.2",
		"entry":                        "none",
		"entry.shop":                   "none",
		"entry.shop.svc.cluster.local": "240.240.0.5",
		// The resolver of the application appends the search domain first.
		"web.shop.svc.cluster.local.shop.svc.cluster.local": "web.shop.svc.cluster.local: 10.0.0.1",
		"web.other.shop.svc.cluster.local":                  "web.other: 10.0.0.2",
		"pay.example.org.shop.svc.cluster.local":            "pay.example.org: 240.240.0.1",
		"a.example.com.shop.svc.cluster.local":              "a.example.com: 240.240.0.3",
		"pay.example.org.svc.cluster.local":                 "none", // not the first search domain: the next query finds it
		"unknown.org.shop.svc.cluster.local":                "none",
		"a.example.com":                                     "240.240.0.3",
		"a.b.example.com":                                   "240.240.0.3",
		"a.deep.example.com":                                "240.240.0.4",
		"example.com":                                       "none",
		"deep.example.com":                                  "240.240.0.3",
		"xexample.com":                                      "none",
		"":                                                  "none",
		".":                                                 "none",
		"svc.cluster.local":                                 "none",
	} {
		alias, addresses, found := table.Lookup(name, false)
		got := "none"
		if found {
			var all []string
			for _, a := range addresses {
				all = append(all, a.String())
			}
			slices.Sort(all)
			if got = strings.Join(all, " "); alias != "" {
				got = alias + ": " + got
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// A name of the mesh is found for either address family.
func TestLookupByFamily(t *testing.T) {
	table := newTable(meshNames(), shop)
	if _, addresses, found := table.Lookup("web", true); !found || !slices.Equal(addresses, addrs("fd00::1")) {
		t.Errorf("web over IPv6: %v %t", addresses, found)
	}
	if _, addresses, found := table.Lookup("pay.example.org", true); !found || len(addresses) != 0 {
		t.Errorf("a name without an IPv6 address: %v, found %t; want one of the mesh, without addresses", addresses, found)
	}
}

// Without a place and a search domain only full names are known.
func TestLookupOutsideOfKubernetes(t *testing.T) {
	table := newTable(meshNames(), Place{})
	for _, name := range []string{"web", "web.shop", "web.shop.svc"} {
		if _, _, found := table.Lookup(name, false); found {
			t.Errorf("%s is known", name)
		}
	}
	if _, _, found := table.Lookup("web.shop.svc.cluster.local", false); !found {
		t.Error("a full name is not")
	}
}

func FuzzLookup(f *testing.F) {
	table := newTable(meshNames(), shop)
	f.Add("a.example.com.shop.svc.cluster.local")
	f.Fuzz(func(t *testing.T, name string) {
		if alias, _, found := table.Lookup(name, false); !strings.HasPrefix(name, alias) || !found && alias != "" {
			t.Errorf("%q: alias %q, found %t", name, alias, found)
		}
	})
}
