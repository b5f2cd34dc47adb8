package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// sent returns a line for each resource of a proxy and of its agent.
func sent(set *manifest.Set) (all []string) {
	for kind := range xds.NumTypes {
		for _, r := range set.Types[kind].Sorted() {
			all = append(all, kind.Noun()+" "+r.Name+" "+r.Version)
		}
	}
	if set.Names != nil {
		all = append(all, namesIn(set.Names.Get(""))...)
	}
	return all
}

// addressed returns records of services, some with stated addresses, whose addresses other nodes may claim.
func addressed(t *testing.T) []model.Record {
	t.Helper()
	return []model.Record{
		svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), svc(t, "bank/vault", "10.96.0.2", "http:80:HTTP", "tcp:5432:TCP"), svc(t, "bank/db", "None", "tcp:6432:TCP"),
		eps(t, "shop/web-1", "{name: http, number: 180}", "10.1.0.1"),
		eps(t, "bank/vault-1", "{name: http, number: 180}, {name: tcp, number: 15432}", "10.1.0.2"),
		eps(t, "bank/db-1", "{name: tcp, number: 16432}", "10.1.0.3"),
		rec(t, model.KindServiceEntry, "bank/ledger", "{hosts: [ledger.example.com], exportTo: ['*'], addresses: [192.0.2.1], ports: [{number: 9000, name: tcp, protocol: PROTOCOL_TCP}]}"),
		rec(t, model.KindEndpoints, "bank/"+model.ServiceEntryPrefix+"ledger", "{hosts: [ledger.example.com], ports: [{name: tcp, number: 9000}], endpoints: [{address: 10.1.0.4, namespace: bank}]}"),
	}
}

// claimers returns proxies of three namespaces, each of which reports all of these addresses as its own.
func claimers() (all []view.Node) {
	for _, namespace := range []string{"evil", "shop", "bank"} {
		for _, kind := range []view.Kind{view.Sidecar, view.Router, view.Proxyless} {
			n := node(namespace, fmt.Sprint("claimer-", kind))
			n.Kind, n.Verified, n.Metadata["DNS_CAPTURE"] = kind, view.Identity{Namespace: namespace, Account: "claimer"}, "true"
			n.Addresses = []string{"10.96.0.1", "10.96.0.2", "192.0.2.1", "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"}
			if kind == view.Proxyless {
				n.Mode, n.Caps = view.None, xds.CapIdentity
			}
			all = append(all, n)
		}
	}
	return all
}

// A node may report as its own the addresses of services, of their endpoints and of ServiceEntries, of its own
// namespace or of others. Every other proxy still receives the endpoints, listeners and DNS names that it receives
// without that node, in any order of joining and after these objects have changed. The node itself serves the ports
// that ServiceEntries of its own namespace state at these addresses, and no ports of other namespaces.
// Promise: security-workloads.md#what-it-says-of-itself
func TestClaimedAddresses(t *testing.T) {
	web, vault := node("shop", "web-1", "app=web"), node("bank", "vault-1", "app=vault")
	web.Addresses, vault.Addresses = []string{"10.1.0.1"}, []string{"10.1.0.2"}
	others := append([]view.Node{node("shop", "client"), web, vault, node("evil", "client"), gateway("bank", "bank"), gateway("shop", "shop")}, resolvers()...)
	alone, among := New(Settings{Snapshot: snapshot(addressed(t)...)}), New(Settings{Snapshot: snapshot(addressed(t)...)})
	var want, got, claiming []*Handle
	claim := func() {
		for _, n := range claimers() {
			h := among.Join(n)
			among.AskNames(h)
			claiming = append(claiming, h)
		}
	}
	same := func(when string) {
		t.Helper()
		for i, n := range others {
			a, b := sent(want[i].Set()), sent(got[i].Set())
			if !slices.Equal(a, b) || len(a) == 0 {
				t.Errorf("%s %s.%s is sent\n%s\nwant\n%s", when, n.Name, n.Namespace, strings.Join(b, "\n"), strings.Join(a, "\n"))
			}
		}
		for _, h := range slices.Concat(got, claiming) {
			if bad := among.Check(h); len(bad) > 0 {
				t.Errorf("%s %s.%s: %v", when, h.Node.Name, h.Node.Namespace, bad)
			}
		}
	}
	claim()
	for _, n := range others {
		want, got = append(want, alone.Join(n)), append(got, among.Join(n))
		alone.AskNames(want[len(want)-1])
		among.AskNames(got[len(got)-1])
	}
	same("who came later:")
	claim()
	same("who was there before:")
	for _, edited := range [][]model.Record{
		{eps(t, "bank/vault-1", "{name: http, number: 180}, {name: tcp, number: 15432}", "10.1.0.2", "10.1.0.5")},
		{svc(t, "bank/vault", "10.96.0.9", "http:80:HTTP", "tcp:5432:TCP"), eps(t, "bank/db-1", "{name: tcp, number: 16432}", "10.1.0.6")},
		{rec(t, model.KindEndpoints, "bank/"+model.ServiceEntryPrefix+"ledger", "{hosts: [ledger.example.com], ports: [{name: tcp, number: 9000}], endpoints: [{address: 10.1.0.4, namespace: bank}, {address: 10.1.0.7, namespace: bank}]}")},
	} {
		for _, p := range []*Planner{alone, among} {
			c := p.Snapshot().Apply(p.Snapshot().Revision()+1, edited, nil)
			if _, rest := p.PlanEndpoints(c, false); len(rest) > 0 {
				p.Apply(mirror.Change{New: c.New, Edits: rest})
			}
		}
		same("after " + edited[0].Meta().Key.String() + ":")
	}
	for i, want := range []string{"", "", "inbound|9000||"} { // of evil, shop and bank
		serves := ""
		for _, cluster := range strings.Fields(names(claiming[3*i].Set(), xds.Cluster)) {
			if strings.HasPrefix(cluster, "inbound|") {
				serves += cluster
			}
		}
		if serves != want {
			t.Errorf("%s serves %q, want %q", claiming[3*i].Node.Namespace, serves, want)
		}
	}
}
