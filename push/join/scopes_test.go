package join

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
)

// endpointsOf returns a snapshot of endpoints by namespace: "address account network".
func endpointsOf(t *testing.T, all map[string][]string) *mirror.Snapshot {
	t.Helper()
	var records []model.Record
	for namespace, lines := range all {
		spec := &model.EndpointsSpec{}
		for _, line := range lines {
			f := append(strings.Fields(line), "")
			spec.Endpoints = append(spec.Endpoints, &model.Endpoint{Address: f[0], ServiceAccount: f[1], Network: f[2]})
		}
		r, err := model.New(model.Key{Kind: model.KindEndpoints, Namespace: namespace, Name: "e"}, 1, spec)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return mirror.Empty().Apply(1, records, nil).New
}

// The network of a Pod without a Service, or of a machine without a ServiceEntry, is known too.
func TestNetworksOfWorkloads(t *testing.T) {
	workload, err := model.New(model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: "w"}, 1,
		&model.WorkloadSpec{Endpoint: &model.Endpoint{Address: "10.0.0.9", ServiceAccount: "web", Network: "west"}})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := mirror.Empty().Apply(1, []model.Record{workload}, nil).New
	if networks, _ := namesIn(snapshot); !networks["west"] {
		t.Error("its network is not known")
	}
}

func newScopes(t *testing.T, snapshot *mirror.Snapshot, now *time.Time) *Scopes {
	t.Helper()
	return &Scopes{Cluster: "Kubernetes", Domain: "svc.cluster.local", Snapshot: func() *mirror.Snapshot { return snapshot },
		Now: func() time.Time { return *now }, Clients: obs.NewSampled(slog.New(slog.DiscardHandler))}
}

// However many networks and DNS domains proxies invent, they share the scopes of proxies with known names.
// Promise: security-limits.md#plans-and-configuration, security-workloads.md#what-it-says-of-itself
func TestInventedNamesMakeNoScopes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	snapshot := endpointsOf(t, map[string][]string{"shop": {"10.0.0.1 web east"}})
	s := newScopes(t, snapshot, &now)
	type planned struct { // what a proxy can be planned for separately by; the network where a rule compares it (view.Inputs)
		scope   view.Scope
		network string
	}
	found := map[planned]bool{}
	add := func(n view.Node) {
		n.Namespace = "shop"
		if err := s.accept(serve.Client{}, &n); err != nil {
			t.Fatal(err)
		}
		found[planned{view.Of(snapshot, n).Scope, n.Network}] = true
	}
	add(view.Node{Network: "east", Domain: "svc.cluster.local"})
	add(view.Node{Domain: "svc.cluster.local"})
	if len(found) != 2 {
		t.Errorf("the known network is not told apart: %d", len(found))
	}
	for i := range 1000 {
		add(view.Node{Network: "invented-" + strconv.Itoa(i), Domain: "svc.invented-" + strconv.Itoa(i)})
	}
	if len(found) != 2 {
		t.Errorf("%d scopes", len(found))
	}
	snapshot = endpointsOf(t, map[string][]string{"shop": {"10.0.0.1 web east"}, "other": {"10.0.0.2 web invented-7"}})
	s.Snapshot = func() *mirror.Snapshot { return snapshot }
	now = now.Add(networksFor)
	if add(view.Node{Network: "invented-7", Domain: "svc.cluster.local"}); len(found) != 3 {
		t.Error("a network that came is not told apart")
	}
}

// A proxy of an unknown cluster must retry, and the error names the cluster; CLUSTER_ID must be the cluster whose keys
// verified the token, known or not. The config cluster is "" (view.Parse).
// Promise: security-limits.md#plans-and-configuration, security-workloads.md#tokens
func TestClusters(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	web, err := model.New(model.Key{Kind: model.KindService, Namespace: "shop", Name: "web", Origin: origin.New("east", "files")}, 0, &model.ServiceSpec{})
	if err != nil {
		t.Fatal(err)
	}
	s := newScopes(t, mirror.Empty().Apply(1, []model.Record{web}, nil).New, &now)
	for _, c := range []struct {
		says, token string
		code        codes.Code
		names       string
	}{
		{says: "", token: "Kubernetes"}, {says: ""},
		{says: "west", token: "west"},
		{says: "west", code: codes.Unavailable, names: `"west"`},
		{says: "east"}, // the configuration has a service of it
		{says: "east", token: "east"},
		{says: "east", token: "Kubernetes", code: codes.PermissionDenied, names: `"east"`},
		{says: "west", token: "Kubernetes", code: codes.PermissionDenied, names: `"west"`},
		{says: "", token: "west", code: codes.PermissionDenied, names: `"west"`},
	} {
		n := view.Node{Cluster: c.says, Domain: "svc.cluster.local"}
		err := s.accept(serve.Client{Caller: attest.Caller{Cluster: c.token}}, &n)
		if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.names) {
			t.Errorf("it says %q, its token is of %q: %v", c.says, c.token, err)
		}
	}
}

// With several clusters, a certificate without a cluster proves none, so that its holder cannot choose by CLUSTER_ID
// whose Secrets it receives. Tokens prove their cluster, and those of our own issuer the one in them; in a mesh of one
// cluster there is no choice.
// Promise: security-workloads.md#what-it-says-of-itself
func TestUnprovedCluster(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var records []model.Record
	for _, cluster := range []string{"", "east", "west"} {
		web, err := model.New(model.Key{Kind: model.KindService, Namespace: "shop", Name: "web", Origin: origin.New(cluster, "files")}, 0, &model.ServiceSpec{})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, web)
	}
	const token, certificate = attest.ByToken, attest.ByCertificate
	for _, c := range []struct {
		clusters         int
		by, cluster      string
		says             string
		unproved, nobody bool
	}{
		{clusters: 3, by: certificate, says: "east", unproved: true}, {clusters: 3, by: certificate, unproved: true},
		{clusters: 3, by: certificate, cluster: "east", says: "east"}, {clusters: 3, by: certificate, cluster: "Kubernetes"},
		{clusters: 3, by: token, cluster: "east", says: "east"}, {clusters: 3, by: token, says: "east"}, {clusters: 3, by: token},
		{clusters: 3, says: "east", nobody: true},
		{clusters: 1, by: certificate}, {clusters: 1, by: token, cluster: "Kubernetes"},
	} {
		s := newScopes(t, mirror.Empty().Apply(1, records[:c.clusters], nil).New, &now)
		n, who := view.Node{Cluster: c.says, Domain: "svc.cluster.local"}, serve.Client{Identity: "spiffe://cluster.local/ns/shop/sa/web", Caller: attest.Caller{By: c.by, Cluster: c.cluster}}
		if c.nobody {
			who.Identity = ""
		}
		if err := s.accept(who, &n); err != nil || n.ClusterUnproved != c.unproved {
			t.Errorf("%+v: unproved %v, %v", c, n.ClusterUnproved, err)
		}
	}
}

// The log names an invented network and DNS domain of a proxy, and no other names of it.
func TestInventedNamesAreReported(t *testing.T) {
	now, log := time.Unix(1_700_000_000, 0), &bytes.Buffer{}
	s := newScopes(t, endpointsOf(t, map[string][]string{"shop": {"10.0.0.1 web east"}}), &now)
	s.Clients = obs.NewSampled(slog.New(slog.NewTextHandler(log, nil)))
	for _, c := range []struct{ network, domain, want string }{
		{"east", "svc.cluster.local", ""}, {"", "svc.cluster.local", ""},
		{"invented", "svc.cluster.local", "name=invented"}, {"east", "svc.elsewhere", "name=svc.elsewhere"},
	} {
		log.Reset()
		if err := s.accept(serve.Client{ID: "web-1", Identity: "spiffe://cluster.local/ns/shop/sa/web"}, &view.Node{Namespace: "shop", Network: c.network, Domain: c.domain}); err != nil {
			t.Fatal(err)
		}
		got := log.String()
		if reported := strings.Contains(got, "node=web-1") && strings.Contains(got, "sa/web"); reported != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("network %q, domain %q: the log says %q", c.network, c.domain, got)
		}
	}
}
