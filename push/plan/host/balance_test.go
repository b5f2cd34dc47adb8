package host

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Values of labels that are replaced leave the assignment as it is, and clients whose values no endpoint has share one.
func TestBalanceReplacesValues(t *testing.T) {
	table, rng := &Table{in: &input.Input{}}, rand.New(rand.NewPCG(1, 2))
	shared := map[endpoint.Balance]bool{}
	for round := range 3000 {
		var priority, own []string
		keys := []string{"a", "b", "c", "a", "b=1", "topology.kubernetes.io/region"}
		for range 1 + rng.IntN(4) {
			priority = append(priority, keys[rng.IntN(len(keys))])
		}
		for _, key := range keys[:3] {
			if n := rng.IntN(4); n > 0 {
				own = append(own, fmt.Sprintf("%s=%d", key, n))
			}
		}
		var members []model.Member
		for i := range 1 + rng.IntN(4) {
			labels := map[string]string{}
			for _, key := range keys[:3] {
				if n := rng.IntN(3); n > 0 {
					labels[key] = fmt.Sprint(n)
				}
			}
			e := &model.Endpoint{Address: fmt.Sprintf("10.0.0.%d", i+1), Labels: labels, Locality: []string{"", "r1", "r2"}[rng.IntN(3)]}
			members = append(members, model.Member{Endpoint: e, Port: 80})
		}
		setting := &networkingv1.LocalityLoadBalancerSetting{FailoverPriority: priority}
		if rng.IntN(2) == 0 {
			setting.Failover = []*networkingv1.LocalityLoadBalancerSetting_Failover{{From: "r1", To: "r2"}}
		}
		in := view.Inputs{Labels: strs.List(own...), Locality: []string{"", "r1"}[rng.IntN(2)]}
		list := memberLists.List(members...)
		got := table.balance(traffic.Localities{Setting: setting}, in, list)
		whole := endpoint.Balance{Localities: got.Localities, Locality: got.Locality}
		var labels []string
		for _, key := range got.Localities.Compared() {
			value, known := table.placeLabel(key, in)
			if !known {
				value, _ = in.Label(key)
			}
			labels = append(labels, key+"="+value)
		}
		whole.Labels = strs.List(labels...)
		build := func(b endpoint.Balance) proto.Message {
			return endpoint.Assignment(endpoint.Spec{Cluster: "c", Members: list, Balance: b}, func(string) bool { return true })
		}
		if a, b := build(got), build(whole); !proto.Equal(a, b) {
			t.Fatalf("round %d: %v of %v, proxy %v: %v and %v", round, got.Labels.All(), priority, own, a, b)
		}
	}
	setting := traffic.Localities{Setting: &networkingv1.LocalityLoadBalancerSetting{FailoverPriority: []string{"a", "b"}}}
	list := memberLists.List(model.Member{Endpoint: &model.Endpoint{Address: "10.0.0.1", Labels: map[string]string{"a": "x", "b": "y"}}, Port: 80})
	for i := range 100 {
		shared[table.balance(setting, view.Inputs{Labels: strs.List(fmt.Sprintf("a=%d", i), fmt.Sprintf("b=%d", i))}, list)] = true
	}
	if len(shared) != 1 {
		t.Errorf("%d different results", len(shared))
	}
}
