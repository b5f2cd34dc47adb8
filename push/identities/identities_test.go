package identities

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// endpointsOf is a snapshot of endpoints by namespace: "address account".
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

// A Pod behind no Service, or a machine behind no ServiceEntry, is known of, too.
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

// The workloads of an identity are those that the configuration has of its service account in its namespace.
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

// The aliases of the trust domain are those of the mesh's configuration, but for what is no trust domain; without a snapshot there are none.
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
