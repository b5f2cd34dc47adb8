package identities

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// endpointsOf returns a snapshot of endpoints by namespace: "address account".
func endpointsOf(t *testing.T, all map[string][]string) *mirror.Snapshot {
	t.Helper()
	var records []model.Record
	for namespace, lines := range all {
		spec := &model.EndpointsSpec{}
		for _, line := range lines {
			f := strings.Fields(line)
			spec.Endpoints = append(spec.Endpoints, &model.Endpoint{Address: f[0], ServiceAccount: f[1]})
		}
		r, err := model.New(model.Key{Kind: model.KindEndpoints, Namespace: namespace, Name: "e"}, 1, spec)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return mirror.Empty().Apply(1, records, nil).New
}

// A Pod without a Service, and a machine without a ServiceEntry, are known too.
func TestWorkloadsCount(t *testing.T) {
	workload, err := model.New(model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: "w"}, 1,
		&model.WorkloadSpec{Endpoint: &model.Endpoint{Address: "10.0.0.9", ServiceAccount: "web", Network: "west"}})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := mirror.Empty().Apply(1, []model.Record{workload}, nil).New
	found := Workloads(func() *mirror.Snapshot { return snapshot })
	if got := found("spiffe://cluster.local/ns/shop/sa/web"); len(got) != 1 {
		t.Errorf("its identity has the addresses %v", got)
	}
	if got := found("spiffe://cluster.local/ns/shop/sa/other"); len(got) != 0 {
		t.Errorf("another identity has the addresses %v", got)
	}
}

// The workloads of an identity are those with its service account in its namespace in the configuration.
func TestWorkloadsOfAnIdentity(t *testing.T) {
	snapshot := endpointsOf(t, map[string][]string{
		"shop":  {"10.0.0.1 web", "10.0.0.2 web", "10.0.0.2 web", "10.0.0.3 db", "db.example.com web", "fd00::1 web"},
		"other": {"10.0.0.9 web"},
	})
	got := Workloads(func() *mirror.Snapshot { return snapshot })("spiffe://cluster.local/ns/shop/sa/web")
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
	for _, want := range []string{"10.0.0.1", "10.0.0.2", "fd00::1"} {
		if _, is := got[netip.MustParseAddr(want)]; !is {
			t.Errorf("%s is not among %v", want, got)
		}
	}
	if got := Workloads(func() *mirror.Snapshot { return nil })("spiffe://cluster.local/ns/shop/sa/web"); got != nil {
		t.Errorf("without a snapshot: %v", got)
	}
}

// The aliases are those of the mesh configuration, without names that are not trust domains; without a snapshot there
// are no aliases.
func TestAliases(t *testing.T) {
	mesh, err := model.New(model.MeshKey, 1,
		&meshv1alpha1.MeshConfig{TrustDomain: "cluster.local", TrustDomainAliases: []string{"old.example", "no domain", "older.example"}})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := mirror.Empty().Apply(1, []model.Record{mesh}, nil).New
	want := []spiffeid.TrustDomain{spiffeid.RequireTrustDomainFromString("old.example"), spiffeid.RequireTrustDomainFromString("older.example")}
	if got := Aliases(func() *mirror.Snapshot { return snapshot })(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := Aliases(func() *mirror.Snapshot { return nil })(); got != nil {
		t.Errorf("without a snapshot: %v", got)
	}
}

// The denied identities are those of the keyring's one policy, and of no other. A follower is notified of each change
// of it, and of no other change.
func TestDenied(t *testing.T) {
	policy := func(namespace, name string, ids ...string) model.Record {
		raw, err := proto.Marshal(&securityv1.AuthorizationPolicy{Rules: []*securityv1.Rule{{From: []*securityv1.Rule_From{{Source: &securityv1.Source{Principals: ids}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := model.New(model.Key{Kind: model.KindAuthorizationPolicy, Namespace: namespace, Name: name}, 1, &model.PolicySpec{Istio: raw})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	id := func(account string) spiffeid.ID {
		return spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/" + account)
	}
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[mirror.Snapshot]
		d := NewDenied(now.Load)
		changes := loop.NewBox(mirror.Merge)
		notified := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Follow(ctx, changes, func() { notified++ }) }()
		for i, step := range []struct {
			record   model.Record
			denied   string
			notified int
		}{
			{policy("shop", model.DeniedName, "cluster.local/ns/shop/sa/web"), "", 0},
			{policy("istio-system", "other", "cluster.local/ns/shop/sa/web"), "", 0},
			{policy("istio-system", model.DeniedName, "cluster.local/ns/shop/sa/web"), "web", 1},
			{policy("shop", "another"), "web", 1},
			{policy("istio-system", model.DeniedName, "cluster.local/ns/shop/sa/db", "elsewhere/ns/shop/sa/web"), "db", 2},
			{nil, "", 3},
		} {
			s := now.Load()
			if s == nil {
				s = mirror.Empty()
			}
			if step.record != nil {
				s = s.Apply(int64(i+1), []model.Record{step.record}, nil).New
			} else {
				s = s.Apply(int64(i+1), nil, []model.Key{{Kind: model.KindAuthorizationPolicy, Namespace: "istio-system", Name: model.DeniedName}}).New
			}
			now.Store(s)
			changes.Put(mirror.Change{})
			synctest.Wait()
			for _, account := range []string{"web", "db"} {
				if d.Has(id(account)) != (account == step.denied) {
					t.Errorf("step %d: %s is denied: %t", i, account, d.Has(id(account)))
				}
			}
			if notified != step.notified {
				t.Errorf("step %d: notified %d times", i, notified)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
