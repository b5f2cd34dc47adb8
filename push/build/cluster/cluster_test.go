package cluster

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

const (
	host     = "reviews.shop.svc.cluster.local"
	name     = "outbound|80||" + host
	httpType = `"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions`
	tlsType  = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext`
	httpKey  = `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`
	open32   = "4294967295"
)

var (
	members intern.Table[model.Member]
	patches intern.Table[model.Patch]
)

func fromYAML(t testing.TB, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

func record[R model.Record](t testing.TB, kind model.Kind, name, text string, body proto.Message) R {
	t.Helper()
	fromYAML(t, text, body)
	r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: name}, 0, body)
	if err != nil {
		t.Fatal(err)
	}
	return r.(R)
}

func rule(t testing.TB, name, text string) *model.DestinationRule {
	return record[*model.DestinationRule](t, model.KindDestinationRule, name, text, &networkingv1.DestinationRule{})
}

func mesh(t testing.TB, text string) *model.Mesh {
	body := &meshv1.MeshConfig{}
	fromYAML(t, text, body)
	all := model.MeshDefaults()
	proto.Merge(all, body)
	r, err := model.New(model.MeshKey, 0, all)
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.Mesh)
}

func filters(t testing.TB, text string) intern.List[model.Patch] {
	f := record[*model.EnvoyFilter](t, model.KindEnvoyFilter, "f", "configPatches: "+text, &networkingv1.EnvoyFilter{})
	var all []model.Patch
	for i := range f.Spec.ConfigPatches {
		all = append(all, model.Patch{Filter: f, Index: i})
	}
	return patches.List(all...)
}

// outbound returns a Spec of the service reviews; service is more YAML of the service, policy a trafficPolicy.
func outbound(t testing.TB, protocol, service, policy string) Outbound {
	t.Helper()
	s := Outbound{
		Service: record[*model.Service](t, model.KindService, "reviews",
			"{hosts: ["+host+"], ports: [{number: 80, name: http, protocol: "+protocol+", targetNumber: 8080}]"+service+"}", &model.ServiceSpec{}),
		Host: host, Port: 80, Mesh: model.DefaultMesh(),
	}
	if policy != "" {
		s.Rule = rule(t, "reviews", "{host: reviews, trafficPolicy: "+policy+"}")
	}
	return s
}

func external(t testing.TB, service string) Outbound {
	s := outbound(t, "PROTOCOL_HTTP", "", "")
	s.Service = record[*model.Service](t, model.KindServiceEntry, "ext",
		"{hosts: ["+host+"], external: true, ports: [{number: 80, name: http, protocol: PROTOCOL_HTTP}], "+service+"}", &model.ServiceSpec{})
	return s
}

func with[S any](s S, change func(*S)) S {
	change(&s)
	return s
}

func at(addresses ...string) intern.List[model.Member] {
	var all []model.Member
	for _, a := range addresses {
		all = append(all, model.Member{Endpoint: &model.Endpoint{Address: a, Namespace: "shop"}, Port: 8080})
	}
	return members.List(all...)
}

// decided completes a Spec with the fields that the plan computes from its rules. TLS is the mode without a rule.
func decided(s spec) spec {
	if p, ok := s.(Proxyless); ok {
		o := decided(p.Outbound).(Outbound)
		o.Discovery = traffic.DiscoveryByResolution(o.Service)
		return Proxyless{o}
	}
	if o, ok := s.(Outbound); ok {
		of, at := subsetOf(o.SubsetRule, o.Subset)
		policy := traffic.Effective(o.Rule, of, at, o.Port)
		o.Policy, o.Discovery = traffic.Intern(policy), traffic.DiscoveryOf(o.Service, policy)
		o.TLS, _ = traffic.TLSOf(policy, traffic.Client{Identity: o.Caps.Has(xds.CapIdentity), Secrets: selects(o.Rule)}, o.TLS)
		o.Secrets = o.Secrets || selects(o.Rule)
		o.Connection = traffic.ConnectionOf(policy.Pool, o.Mesh)
		if port := o.port(); port != nil {
			o.Upgrade = traffic.Upgrades(policy.Pool, o.Mesh, port.Protocol)
		}
		return o
	}
	switch s := s.(type) {
	case Inbound:
		s.Connection = traffic.ConnectionOf(s.Pool, s.Mesh)
		return s
	case Static:
		s.Connection = traffic.PassthroughConnection(s.Mesh)
		return s
	}
	return s
}

func selects(rule *model.DestinationRule) bool {
	return rule != nil && rule.Spec.GetWorkloadSelector() != nil
}

// problemsOf lists the problems of the plan's computation and of the builder.
func problemsOf(s spec) (all []error) {
	if o, ok := s.(Outbound); ok {
		of, at := subsetOf(o.SubsetRule, o.Subset)
		if _, wrong := traffic.TLSOf(traffic.Effective(o.Rule, of, at, o.Port), traffic.Client{Identity: o.Caps.Has(xds.CapIdentity), Secrets: selects(o.Rule)}, o.TLS); wrong != nil {
			all = append(all, *wrong)
		}
	}
	return append(all, decided(s).Problems()...)
}

type spec interface {
	Build() (*xds.Resource, error)
	Problems() []error
}

func build(t testing.TB, s spec) (*xds.Resource, *clusterv3.Cluster) {
	t.Helper()
	r, err := decided(s).Build()
	if err != nil {
		t.Fatal(err)
	}
	c := &clusterv3.Cluster{}
	if err := proto.Unmarshal(r.Body(), c); err != nil {
		t.Fatal(err)
	}
	if r.Name != c.Name || r.Type != xds.Cluster {
		t.Errorf("%v resource %s holds cluster %s", r.Type, r.Name, c.Name)
	}
	if err := patch.Check(c); err != nil {
		t.Errorf("%s violates Envoy's API: %v", c.Name, err)
	}
	return r, c
}

// differs compares the fields that want has, and those that it states as absent.
func differs(t testing.TB, c *clusterv3.Cluster, want string, absent ...string) string {
	t.Helper()
	w := &clusterv3.Cluster{}
	fromYAML(t, want, w)
	got := proto.CloneOf(c)
	got.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !w.ProtoReflect().Has(fd) && !slices.Contains(absent, string(fd.Name())) {
			got.ProtoReflect().Clear(fd)
		}
		return true
	})
	return cmp.Diff(w, got, protocmp.Transform())
}

// A whole cluster as Istio's sidecars receive it.
func TestWhole(t *testing.T) {
	r, c := build(t, outbound(t, "PROTOCOL_HTTP", "", ""))
	want := &clusterv3.Cluster{}
	fromYAML(t, `{name: "`+name+`", alt_stat_name: "`+name+`;", type: EDS, connect_timeout: 10s, lb_policy: LEAST_REQUEST,
		eds_cluster_config: {service_name: "`+name+`", eds_config: {ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}},
		circuit_breakers: {thresholds: [{max_connections: `+open32+`, max_pending_requests: `+open32+`, max_requests: `+open32+`, max_retries: `+open32+`, track_remaining: true}]},
		common_lb_config: {healthy_panic_threshold: {}},
		metadata: {filter_metadata: {istio: {default_original_port: 80, services: [{host: `+host+`, name: reviews, namespace: shop}]}}}}`, want)
	if d := cmp.Diff(want, c, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if want := []xds.Ref{{Type: xds.Endpoint, Name: name}}; !slices.Equal(r.Needs, want) {
		t.Errorf("needs %v, want %v", r.Needs, want)
	}
}

func TestClusters(t *testing.T) {
	for label, c := range cases(t) {
		t.Run(label, func(t *testing.T) {
			_, got := build(t, c.spec)
			if d := differs(t, got, c.want, c.absent...); d != "" {
				t.Error(d)
			}
			problems := problemsOf(c.spec)
			var text []string
			for _, p := range problems {
				text = append(text, p.Error())
			}
			if c.problem == "" && len(problems) > 0 || c.problem != "" && (len(problems) != 1 || !strings.Contains(text[0], c.problem)) {
				t.Errorf("problems %q, want %q", text, c.problem)
			}
		})
	}
}

// EDS is requested for the clusters that use it, and for no others.
func TestNeeds(t *testing.T) {
	for label, c := range cases(t) {
		r, got := build(t, c.spec)
		if eds := got.GetType() == clusterv3.Cluster_EDS; eds != (len(r.Needs) == 1) {
			t.Errorf("%s: type %v needs %v", label, got.GetType(), r.Needs)
		}
	}
}

// A cluster waits for the secrets in its TLS, from whatever source; health checks have no references.
func TestSecrets(t *testing.T) {
	for label, want := range map[string][]string{
		"mTLS to all":                          {"default", "ROOTCA"},
		"mTLS by endpoint":                     {"default", "ROOTCA"},
		"mutual, files and lists by the agent": {"file-cert:/c.pem~/k.pem", "file-root:/ca.pem~/crl.pem"},
	} {
		if r, _ := build(t, cases(t)[label].spec); !slices.Equal(r.Secrets, want) || r.WarmsUnseen {
			t.Errorf("%s: secrets %q, warms unseen %v; want %q", label, r.Secrets, r.WarmsUnseen, want)
		}
	}
	probed := Added{Patch: filters(t, `[{applyTo: CLUSTER, patch: {operation: ADD, value: {name: a, type: EDS, connect_timeout: 1s,
		eds_cluster_config: {eds_config: {ads: {}}}, health_checks: [{timeout: 1s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {}}]}}}]`).All()[0]}
	if r, err := probed.Build(); err != nil || !r.WarmsUnseen {
		t.Errorf("health checks: %v, %v", r, err)
	}
}

func TestNothingToBuild(t *testing.T) {
	for _, c := range []struct {
		spec spec
		want string
	}{
		{with(outbound(t, "PROTOCOL_HTTP", "", ""), func(s *Outbound) { s.Port = 81 }), "Service shop/reviews has no port 81"},
		{Inbound{Port: 80, Target: "localhost:80", Mesh: model.DefaultMesh()}, `target "localhost:80": want ip:port or unix://path`},
		{Static{Name: "no", Mesh: model.DefaultMesh()}, "cluster no: not a static cluster"},
		{Added{Patch: filters(t, `[{applyTo: CLUSTER, patch: {operation: ADD, value: {nome: a}}}]`).All()[0]}, `EnvoyFilter shop/f: spec.configPatches[0].patch.value: unknown field "nome"`},
	} {
		if r, err := c.spec.Build(); err == nil || r != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, %v; want %s", r, err, c.want)
		}
		if len(c.spec.Problems()) == 0 {
			t.Errorf("%s: is no problem", c.want)
		}
	}
}

// The Spec is the cache key: equal Specs have equal keys and equal bytes.
func TestDeterministic(t *testing.T) {
	first, second := cases(t), cases(t)
	for label := range first {
		a, _ := build(t, first[label].spec)
		b, _ := build(t, first[label].spec)
		again, _ := build(t, second[label].spec) // other pointers, same content
		if a.Version != b.Version || a.Version != again.Version {
			t.Errorf("%s: versions %s, %s, %s", label, a.Version, b.Version, again.Version)
		}
		if map[spec]bool{first[label].spec: true}[first[label].spec] != true {
			t.Errorf("%s: is no key", label)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	plain := outbound(b, "PROTOCOL_HTTP2", "", `{connectionPool: {tcp: {maxConnections: 1}}}`)
	patched := plain
	patched.Patches = filters(b, `[{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 3s}}}]`)
	for name, s := range map[string]spec{"plain": decided(plain), "patched": decided(patched)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Build(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// subsetOf returns the rule and the place of a subset, the arguments of traffic.Effective. It returns nil if the rule
// has no subset of the name.
func subsetOf(rule *model.DestinationRule, name string) (*model.DestinationRule, int) {
	if rule != nil {
		for i, s := range rule.Spec.GetSubsets() {
			if s.GetName() == name {
				return rule, i
			}
		}
	}
	return nil, 0
}
