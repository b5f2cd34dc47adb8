package normal

import networkingv1 "istio.io/api/networking/v1alpha3"

// Bounds of locality settings. Proxies compare each endpoint with each label, and Envoy has at most 128 priorities.
const (
	maxPriorityLabels = 32  // failoverPriority
	maxFailovers      = 256 // pairs of failover, and elements of distribute
	maxDistributed    = 100 // localities of one element of distribute, because each has a weight of at least 1
)

// withinBounds reports lists of a locality setting or zone-aware setting that are too long. The result is false if
// there is one.
func withinBounds(r *report, at string, priorities []string, failovers int,
	distribute []*networkingv1.LocalityLoadBalancerSetting_Distribute) bool {
	within := true
	check := func(field, of string, n, most int) {
		if n > most {
			r.errorf(at+field, "has %d %s: want at most %d", n, of, most)
			within = false
		}
	}
	check(".failoverPriority", "labels", len(priorities), maxPriorityLabels)
	check(".failover", "regions", failovers, maxFailovers)
	check(".distribute", "elements", len(distribute), maxFailovers)
	for _, d := range distribute {
		if n := len(d.GetTo()); n > maxDistributed {
			check(".distribute", "localities in one element", n, maxDistributed)
			break
		}
	}
	return within
}
