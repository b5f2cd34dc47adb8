package traffic

import (
	"iter"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// Localities holds the settings that decide which localities of endpoints a proxy prefers. At most one of the fields is
// set. The zero Localities means that all localities are equal. Localities is comparable.
type Localities struct {
	// Setting prefers localities by priorities or by weights.
	Setting *networkingv1.LocalityLoadBalancerSetting
	// Zones sets priorities among regions. Envoy itself balances among the zones of the proxy's region.
	Zones *networkingv1.ZoneAwareLoadBalancerSetting
}

// Stated reports whether Setting or Zones is set.
func (l Localities) Stated() bool { return l != Localities{} }

// Priority returns the failoverPriority of the settings. Its elements are labels ("key" or "key=value") that decide the
// priority of endpoints. The result is read-only, and empty if the settings have no failoverPriority.
func (l Localities) Priority() []string {
	if l.Zones != nil {
		return l.Zones.GetFailoverPriority()
	}
	return l.Setting.GetFailoverPriority()
}

// Compared returns the keys of the proxy's labels that failoverPriority compares with labels of endpoints. They are in
// the order of Priority. Without such keys the result is nil. Elements of the form "key=value" are left out, because
// the proxy's label does not matter for them.
func (l Localities) Compared() (keys []string) {
	for _, label := range l.Priority() {
		if !strings.Contains(label, "=") {
			keys = append(keys, label)
		}
	}
	return keys
}

// Failovers iterates over pairs of a region and its failover target, in the order of the settings.
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

// Failover returns the failover target of a region, from the first pair with this region. It returns "" and false if no
// pair has the region.
func (l Localities) Failover(of string) (to string, set bool) {
	for from, to := range l.Failovers() {
		if from == of {
			return to, true
		}
	}
	return "", false
}

// Weighted reports whether Envoy balances by weight among localities of equal priority. It is true if Setting has
// distribute, failover or failoverPriority.
func (l Localities) Weighted() bool {
	return len(l.Setting.GetDistribute()) > 0 || len(l.Setting.GetFailover()) > 0 ||
		len(l.Setting.GetFailoverPriority()) > 0
}
