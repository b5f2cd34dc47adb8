package weight

import (
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// The entries of a large ring count for each cluster and subset, and those of a ring of a common size do not count.
// Promise: security-gateways.md#make-a-gateway-fail
func TestRings(t *testing.T) {
	mesh := NewIndex()
	mesh.Replace(nil, []model.Record{serviceOf(t, "a", 10, 10, "*")})
	of := func(size uint64) int {
		return Of(record(t, model.KindDestinationRule, "d", ringOf("h1.a.example.com", size)), mesh).Exported
	}
	common := of(1024)
	if of(65_537) > common+10 {
		t.Errorf("a ring of 65,537 entries weighs %d KiB, and one of 1,024 %d KiB", of(65_537), common)
	}
	const clusters, subsets = 10, 2
	if got, want := of(8<<20)-common, clusters*(1+subsets)*(8<<20)/perEntry; got < want*9/10 || got > want*11/10 {
		t.Errorf("a ring of 8 Mi entries weighs %d KiB more, want about %d", got, want)
	}
}

// ringOf returns a DestinationRule with two subsets, of which one states the size of its ring.
func ringOf(host string, size uint64) *networkingv1.DestinationRule {
	hash := &networkingv1.LoadBalancerSettings_ConsistentHashLB{HashAlgorithm: &networkingv1.LoadBalancerSettings_ConsistentHashLB_RingHash_{
		RingHash: &networkingv1.LoadBalancerSettings_ConsistentHashLB_RingHash{MinimumRingSize: size}}}
	balancer := &networkingv1.LoadBalancerSettings{LbPolicy: &networkingv1.LoadBalancerSettings_ConsistentHash{ConsistentHash: hash}}
	return &networkingv1.DestinationRule{Host: host, Subsets: []*networkingv1.Subset{{Name: "plain"},
		{Name: "hashed", TrafficPolicy: &networkingv1.TrafficPolicy{LoadBalancer: balancer}}}}
}
