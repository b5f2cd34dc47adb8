package traffic

import (
	"iter"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// Localities is how the localities of endpoints are preferred to one another, by where the proxy is. The zero Localities: they are not. Comparable.
type Localities struct {
	// Setting is by priorities, or by weights; nil: none.
	Setting *networkingv1.LocalityLoadBalancerSetting
	// Zones, in its place, is by priorities among regions, and by Envoy itself among the zones of the proxy's region; nil: none.
	Zones *networkingv1.ZoneAwareLoadBalancerSetting
}

// Stated says whether localities are preferred to one another.
func (l Localities) Stated() bool { return l != Localities{} }

// Priority is failoverPriority: labels ("key", or "key=value") by which endpoints come into priorities.
func (l Localities) Priority() []string {
	if l.Zones != nil {
		return l.Zones.GetFailoverPriority()
	}
	return l.Setting.GetFailoverPriority()
}

// Compared are the keys of the proxy's labels that failoverPriority compares with those of endpoints: of "key=value", which says what the endpoint's has to
// be, none.
func (l Localities) Compared() (keys []string) {
	for _, label := range l.Priority() {
		if !strings.Contains(label, "=") {
			keys = append(keys, label)
		}
	}
	return keys
}

// Failovers are the regions, and those that they fail over to, in the order of the setting.
func (l Localities) Failovers() iter.Seq2[string, string] {
	return func(yield func(from, to string) bool) {
		for _, f := range l.Setting.GetFailover() {
			if !yield(f.GetFrom(), f.GetTo()) {
				return
			}
		}
		for _, f := range l.Zones.GetFailover() {
			if !yield(f.GetFrom(), f.GetTo()) {
				return
			}
		}
	}
}

// Failover is the region that a region fails over to; false: the setting names none.
func (l Localities) Failover(of string) (to string, set bool) {
	for from, to := range l.Failovers() {
		if from == of {
			return to, true
		}
	}
	return "", false
}

// Weighted says whether Envoy has to weigh localities of one priority against each other.
func (l Localities) Weighted() bool {
	return len(l.Setting.GetDistribute()) > 0 || len(l.Setting.GetFailover()) > 0 || len(l.Setting.GetFailoverPriority()) > 0
}
