package endpoint

import (
	"math"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

const cluster = "outbound|80||a"

var members intern.Table[model.Member]

func build(t testing.TB, all ...model.Member) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	r, err := Spec{Cluster: cluster, Members: members.List(all...)}.Build()
	if err != nil {
		t.Fatal(err)
	}
	cla := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(r.Body(), cla); err != nil {
		t.Fatal(err)
	}
	if err := cla.ValidateAll(); err != nil {
		t.Error(err)
	}
	if r.Type != xds.Endpoint || r.Name != cluster || cla.ClusterName != cluster || len(r.Needs) != 0 {
		t.Errorf("%v %s of %s needs %v", r.Type, r.Name, cla.ClusterName, r.Needs)
	}
	return cla
}

func at(e *model.Endpoint, port uint32) model.Member { return model.Member{Endpoint: e, Port: port} }

func TestBuild(t *testing.T) {
	lb := func(address, rest string) string {
		return `{endpoint: {address: {socket_address: {address: "` + address + `", port_value: 80}}}, health_status: HEALTHY, load_balancing_weight: 1, metadata: {filter_metadata: {istio: {workload: ;;;latest;}}}` + rest + `}`
	}
	for _, c := range []struct {
		name string
		have []model.Member
		want string
	}{
		{"nobody", nil, `[]`},
		{"localities in order, each once", []model.Member{
			at(&model.Endpoint{Address: "10.0.0.3", Locality: "r2/z/s"}, 80), at(&model.Endpoint{Address: "10.0.0.2", Locality: "r1"}, 80), at(&model.Endpoint{Address: "10.0.0.1", Locality: "r2/z/s"}, 80), at(&model.Endpoint{Address: "10.0.0.4"}, 80)},
			`[{load_balancing_weight: 1, lb_endpoints: [` + lb("10.0.0.4", "") + `]},
			  {locality: {region: r1}, load_balancing_weight: 1, lb_endpoints: [` + lb("10.0.0.2", "") + `]},
			  {locality: {region: r2, zone: z, sub_zone: s}, load_balancing_weight: 2, lb_endpoints: [` + lb("10.0.0.1", "") + `, ` + lb("10.0.0.3", "") + `]}]`},
		{"weights, health and identity", []model.Member{
			at(&model.Endpoint{Address: "10.0.0.1", Weight: 3, Health: model.Health_HEALTH_DRAINING, Mtls: true, Workload: "wl", Namespace: "ns", Cluster: "k", Labels: map[string]string{"service.istio.io/canonical-name": "cn", "service.istio.io/canonical-revision": "cr", "app": "no", "version": "no"}}, 80),
			at(&model.Endpoint{Address: "10.0.0.2", Health: model.Health_HEALTH_NOT_READY, Workload: "wl", Namespace: "ns", Labels: map[string]string{"app": "app", "version": "v2"}}, 80),
			at(&model.Endpoint{Address: "10.0.0.3", Workload: "wl", Labels: map[string]string{"app.kubernetes.io/name": "kn", "app.kubernetes.io/version": "kv", "app": "no", "version": "no"}}, 80),
			at(&model.Endpoint{Address: "10.0.0.4", Workload: "wl"}, 80)},
			`[{load_balancing_weight: 6, lb_endpoints: [
			  {endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}, health_status: DRAINING, load_balancing_weight: 3, metadata: {filter_metadata: {istio: {workload: wl;ns;cn;cr;k}, envoy.transport_socket_match: {tlsMode: istio}}}},
			  {endpoint: {address: {socket_address: {address: 10.0.0.2, port_value: 80}}}, health_status: UNHEALTHY, load_balancing_weight: 1, metadata: {filter_metadata: {istio: {workload: wl;ns;app;v2;}}}},
			  {endpoint: {address: {socket_address: {address: 10.0.0.3, port_value: 80}}}, health_status: HEALTHY, load_balancing_weight: 1, metadata: {filter_metadata: {istio: {workload: wl;;kn;kv;}}}},
			  {endpoint: {address: {socket_address: {address: 10.0.0.4, port_value: 80}}}, health_status: HEALTHY, load_balancing_weight: 1, metadata: {filter_metadata: {istio: {workload: wl;;wl;latest;}}}}]}]`},
		{"a socket", []model.Member{at(&model.Endpoint{Address: "unix:///run/a"}, 0)},
			`[{load_balancing_weight: 1, lb_endpoints: [{endpoint: {address: {pipe: {path: /run/a}}}, health_status: HEALTHY, load_balancing_weight: 1, metadata: {filter_metadata: {istio: {workload: ;;;latest;}}}}]}]`},
		{"what Envoy would refuse is left out", []model.Member{
			at(&model.Endpoint{Address: "a.example.com"}, 80), at(&model.Endpoint{Address: ""}, 80), at(&model.Endpoint{Address: "10.0.0.1"}, 0), at(&model.Endpoint{Address: "10.0.0.2"}, 65536), at(&model.Endpoint{Address: "unix://"}, 0), at(&model.Endpoint{Address: "unix:///" + strings.Repeat("a", 107)}, 0), at(&model.Endpoint{Address: "fe80::1%eth0"}, 80), at(&model.Endpoint{Address: "fd00::1"}, 80)},
			`[{load_balancing_weight: 1, lb_endpoints: [` + lb("fd00::1", "") + `]}]`},
		{"one address stands once", []model.Member{
			at(&model.Endpoint{Address: "10.0.0.1"}, 80), at(&model.Endpoint{Address: "10.0.0.1", Weight: 9}, 80), at(&model.Endpoint{Address: "10.0.0.1", Locality: "r"}, 80), at(&model.Endpoint{Address: "unix://a"}, 1), at(&model.Endpoint{Address: "unix://a"}, 2)},
			`[{load_balancing_weight: 2, lb_endpoints: [` + lb("10.0.0.1", "") + `, {endpoint: {address: {pipe: {path: a}}}, health_status: HEALTHY, load_balancing_weight: 1, metadata: {filter_metadata: {istio: {workload: ;;;latest;}}}}]}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := &endpointv3.ClusterLoadAssignment{}
			raw, err := yaml.YAMLToJSON([]byte(`{cluster_name: "` + cluster + `", endpoints: ` + c.want + `}`))
			if err == nil {
				err = protojson.Unmarshal(raw, want)
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, build(t, c.have...), protocmp.Transform()); d != "" {
				t.Error(d)
			}
		})
	}
}

// If the sum of all weights exceeds Envoy's limit, all are scaled down, and none to 0.
func TestWeightsFit(t *testing.T) {
	var all []model.Member
	for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		all = append(all, at(&model.Endpoint{Address: address, Locality: address, Weight: math.MaxUint32}, 80))
	}
	all = append(all, at(&model.Endpoint{Address: "10.0.0.4", Locality: "10.0.0.1"}, 80))
	var sum uint64
	for _, l := range build(t, all...).Endpoints {
		sum += uint64(l.LoadBalancingWeight.Value)
		var inside uint64
		for _, e := range l.LbEndpoints {
			inside += uint64(e.LoadBalancingWeight.Value)
			if w := e.LoadBalancingWeight.Value; w == 0 || e.GetEndpoint().GetAddress().GetSocketAddress().Address != "10.0.0.4" && w != math.MaxUint32>>2 {
				t.Errorf("weight %d", w)
			}
		}
		if inside != uint64(l.LoadBalancingWeight.Value) {
			t.Errorf("locality of %d weighs %d", inside, l.LoadBalancingWeight.Value)
		}
	}
	if sum > math.MaxUint32 {
		t.Errorf("sum %d", sum)
	}
}

// The order of slices has no effect, and the list of the caller is not changed.
func TestDeterministic(t *testing.T) {
	all := []model.Member{
		at(&model.Endpoint{Address: "10.0.0.2", Locality: "b", Labels: map[string]string{"app": "x", "version": "y"}}, 80),
		at(&model.Endpoint{Address: "10.0.0.1", Locality: "a"}, 81), at(&model.Endpoint{Address: "10.0.0.1", Locality: "a"}, 80),
	}
	version := func(list ...model.Member) string {
		r, err := Spec{Cluster: cluster, Members: members.List(list...)}.Build()
		if err != nil {
			t.Fatal(err)
		}
		return r.Version
	}
	list := members.List(all...)
	want := version(all...)
	back := slices.Clone(all)
	slices.Reverse(back)
	if got := version(back...); got != want {
		t.Errorf("reversed %s, want %s", got, want)
	}
	if !slices.Equal(list.All(), all) {
		t.Error("building changed the list of members")
	}
	if slices.IsSortedFunc(all, func(a, b model.Member) int { return strings.Compare(a.Endpoint.Address, b.Endpoint.Address) }) {
		t.Error("this test needs a list that is not in order")
	}
	if (Spec{Cluster: cluster, Members: list}) != (Spec{Cluster: cluster, Members: members.List(all...)}) {
		t.Error("equal Specs differ")
	}
}

// Every address makes an assignment that satisfies Envoy's constraints.
func FuzzBuild(f *testing.F) {
	f.Add("10.0.0.1", uint32(80), "r/z/s", uint32(3))
	f.Add("unix:///a", uint32(0), "///", uint32(0))
	f.Add("fe80::1%eth0", uint32(70000), "/", uint32(math.MaxUint32))
	f.Fuzz(func(t *testing.T, address string, port uint32, locality string, weight uint32) {
		for _, s := range []string{address, locality} {
			if strings.ToValidUTF8(s, "") != s {
				return // no record has such strings
			}
		}
		build(t, at(&model.Endpoint{Address: address, Locality: locality, Weight: weight}, port), at(&model.Endpoint{Address: "::1", Weight: math.MaxUint32}, 1))
	})
}
