package endpoint

import (
	"fmt"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

func setting(t testing.TB, text string) *networkingv1.LocalityLoadBalancerSetting {
	t.Helper()
	out := &networkingv1.LocalityLoadBalancerSetting{}
	read(t, text, out)
	return out
}

func read(t testing.TB, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// The priority and weight of each locality, by the locality of the proxy.
func TestBalance(t *testing.T) {
	var list []model.Member
	for i, locality := range []string{"r1/z1/s1", "r1/z1/s2", "r1/z2", "r2/z1", "r3/z1", "r3/z1", ""} {
		list = append(list, at(&model.Endpoint{Address: fmt.Sprintf("10.0.0.%d", i+1), Locality: locality, Network: "n1",
			Labels: map[string]string{"version": fmt.Sprint("v", i%2)}}, 80))
	}
	var labels intern.Table[string]
	for _, c := range []struct {
		name, setting, locality string
		labels                  []string
		want                    string // "locality:priority:weight"
	}{
		{"no setting", "", "r1/z1/s1", nil, ":0:1 r1/z1/s1:0:1 r1/z1/s2:0:1 r1/z2:0:1 r2/z1:0:1 r3/z1:0:2"},
		{"nearest first", "{}", "r1/z1/s1", nil, "r1/z1/s1:0:1 r1/z1/s2:1:1 r1/z2:2:1 :3:1 r2/z1:3:1 r3/z1:3:2"},
		{"priorities have no gaps", "{}", "r2/z9", nil, "r2/z1:0:1 :1:1 r1/z1/s1:1:1 r1/z1/s2:1:1 r1/z2:1:1 r3/z1:1:2"},
		{"a proxy that is nowhere", "{}", "", nil, ":0:1 r1/z1/s1:1:1 r1/z1/s2:1:1 r1/z2:1:1 r2/z1:1:1 r3/z1:1:2"},
		{"failover of the region", "{failover: [{from: r1, to: r3}]}", "r1/z1/s1", nil, "r1/z1/s1:0:1 r1/z1/s2:1:1 r1/z2:2:1 r3/z1:3:2 :4:1 r2/z1:4:1"},
		{"failover of another region", "{failover: [{from: r2, to: r3}]}", "r1/z1/s1", nil, "r1/z1/s1:0:1 r1/z1/s2:1:1 r1/z2:2:1 :3:1 r2/z1:3:1 r3/z1:3:2"},
		{"labels", "{failoverPriority: [version]}", "r1/z1/s1", []string{"version=v0"}, ":0:1 r1/z1/s1:0:1 r1/z2:0:1 r3/z1:0:1 r1/z1/s2:1:1 r2/z1:1:1 r3/z1:1:1"},
		{"a label with its value", "{failoverPriority: ['version=v1']}", "r1/z1/s1", nil, "r1/z1/s2:0:1 r2/z1:0:1 r3/z1:0:1 :1:1 r1/z1/s1:1:1 r1/z2:1:1 r3/z1:1:1"},
		{"labels of the place", "{failoverPriority: [topology.istio.io/network, topology.kubernetes.io/region]}", "r1", []string{"topology.istio.io/network=n1", "topology.kubernetes.io/region=r1"},
			"r1/z1/s1:0:1 r1/z1/s2:0:1 r1/z2:0:1 :1:1 r2/z1:1:1 r3/z1:1:2"},
		{"labels of the place, in another network", "{failoverPriority: [topology.istio.io/network, topology.kubernetes.io/region]}", "r1", []string{"topology.istio.io/network=n2", "topology.kubernetes.io/region=r1"},
			"r1/z1/s1:0:1 r1/z1/s2:0:1 r1/z2:0:1 :1:1 r2/z1:1:1 r3/z1:1:2"},
		{"distribute", "{distribute: [{from: 'r1/*', to: {'r1/*': 80, 'r3/z1': 20}}]}", "r1/z1/s1", nil, "r1/z1/s1:0:27 r1/z1/s2:0:27 r1/z2:0:27 r3/z1:0:20"},
		{"distribute from elsewhere", "{distribute: [{from: 'r2/*', to: {'r1/*': 100}}]}", "r1/z1/s1", nil, ":0:1 r1/z1/s1:0:1 r1/z1/s2:0:1 r1/z2:0:1 r2/z1:0:1 r3/z1:0:2"},
		{"zones: Envoy's own", "zones {enabled: true}", "r1/z1/s1", nil, "r1/z1/s1:0:1 r1/z1/s2:0:1 r1/z2:0:1 :1:1 r2/z1:1:1 r3/z1:1:2"},
		{"zones, failover of the region", "zones {failover: [{from: r2, to: r1}, {from: r1, to: r3}]}", "r1/z1/s1", nil, "r1/z1/s1:0:1 r1/z1/s2:0:1 r1/z2:0:1 r3/z1:1:2 :2:1 r2/z1:2:1"},
		{"zones, a region without endpoints", "zones {failover: [{from: r9, to: r3}]}", "r9/z1", nil, "r3/z1:0:2 :1:1 r1/z1/s1:1:1 r1/z1/s2:1:1 r1/z2:1:1 r2/z1:1:1"},
		{"zones, labels first", "zones {failoverPriority: [version]}", "r1/z1/s1", []string{"version=v0"}, "r1/z1/s1:0:1 r1/z2:0:1 :1:1 r3/z1:1:1 r1/z1/s2:2:1 r2/z1:3:1 r3/z1:3:1"},
		{"zones, a proxy that is nowhere", "zones {failover: [{from: r1, to: r3}]}", "", nil, ":0:1 r1/z1/s1:0:1 r1/z1/s2:0:1 r1/z2:0:1 r2/z1:0:1 r3/z1:0:2"},
	} {
		b := Balance{Locality: c.locality, Labels: labels.List(c.labels...)}
		if zones, is := strings.CutPrefix(c.setting, "zones "); is {
			b.Localities.Zones = &networkingv1.ZoneAwareLoadBalancerSetting{}
			read(t, zones, b.Localities.Zones)
		} else if c.setting != "" {
			b.Localities.Setting = setting(t, c.setting)
		}
		r, err := Spec{Cluster: cluster, Members: members.List(list...), Balance: b}.Build()
		if err != nil {
			t.Fatal(err)
		}
		cla := &endpointv3.ClusterLoadAssignment{}
		if err := proto.Unmarshal(r.Body(), cla); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range cla.Endpoints {
			l := g.GetLocality()
			name := strings.TrimRight(strings.Join([]string{l.GetRegion(), l.GetZone(), l.GetSubZone()}, "/"), "/")
			got = append(got, fmt.Sprintf("%s:%d:%d", name, g.Priority, g.LoadBalancingWeight.GetValue()))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, s, c.want)
		}
	}
}

// The network is preferred if it is the first label of failoverPriority, and the other labels order the endpoints of
// other networks too only then. The order is that of Istio 1.31's change notes: network, region and zone; network and
// region; network; region and zone; region; others.
func TestNetworkIsPreferred(t *testing.T) {
	const network, region, zone = "topology.istio.io/network", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
	own := []string{network + "=n1", region + "=r1", zone + "=z1"}
	places := []*model.Endpoint{{Network: "n1", Locality: "r1/z1"}, {Network: "n1", Locality: "r1/z2"}, {Network: "n1", Locality: "r2/z1"}, {Network: "n2", Locality: "r1/z1"}, {Network: "n2", Locality: "r1/z2"},
		{Network: "n2", Locality: "r2/z1"}}
	var labels intern.Table[string]
	for _, c := range []struct {
		priority []string
		want     []uint32 // of each place
	}{
		{[]string{network, region, zone}, []uint32{0, 1, 2, 3, 4, 5}},
		{[]string{network + "=n1", region, zone}, []uint32{0, 1, 2, 3, 4, 5}},
		{[]string{network + "=n2", region, zone}, []uint32{3, 4, 5, 0, 1, 2}},
		{[]string{network}, []uint32{0, 0, 0, 1, 1, 1}},
		{[]string{region, network, zone}, []uint32{0, 1, 3, 2, 2, 3}},
		{[]string{region, zone}, []uint32{0, 1, 2, 0, 1, 2}},
	} {
		b := Balance{Labels: labels.List(own...), Localities: traffic.Localities{Setting: &networkingv1.LocalityLoadBalancerSetting{FailoverPriority: c.priority}}}
		pace := &pacer{pause: func() {}}
		for i, e := range places {
			if got := labelPriority(e, b.preferred(pace), pace); got != c.want[i] {
				t.Errorf("%v: network %s, %s: priority %d, want %d", c.priority, e.Network, e.Locality, got, c.want[i])
			}
		}
	}
}
