package weight

import (
	"slices"

	"navarch.io/navarch/store/model"
)

// setEndpoints sets the points (endpoints multiplied by ports) that a record adds to each of its hosts. With 0 points,
// the record is removed.
func (x *Index) setEndpoints(key model.Key, hosts []string, points int) {
	was := x.points[key]
	if was == points {
		return
	}
	add(x.points, key, points-was)
	x.spread(x.endpoints, key.Namespace, hosts, points-was)
}

// freeSliced is the number of points in the EndpointSlices of one host that add no weight. Points are endpoints
// multiplied by ports.
const freeSliced = 500

// countedSliced returns the points that add weight, given all points in the EndpointSlices of a host. The result is
// rounded up (step), so that weights rarely change when Pods come and go.
func countedSliced(n int) int { return step(max(0, n-freeSliced)) }

// setSliced sets the points that an EndpointSlice adds to each of its hosts. With 0 points, the EndpointSlice is
// removed. The cost does not depend on the number of points.
func (x *Index) setSliced(key model.Key, hosts []string, points int) {
	was := x.points[key]
	if was == points {
		return
	}
	add(x.points, key, points-was)
	for _, h := range hosts {
		t := target{namespace: key.Namespace, host: h}
		before := countedSliced(x.sliced[t])
		add(x.sliced, t, points-was)
		if after := countedSliced(x.sliced[t]); after != before {
			x.spread(x.endpoints, key.Namespace, []string{h}, after-before)
		}
	}
}

// replaced reports whether a list of records contains a new version of an EndpointSlice with equal hosts.
func replaced(old *model.Endpoints, now []model.Record) bool {
	return slices.ContainsFunc(now, func(r model.Record) bool {
		t, is := r.(*model.Endpoints)
		return is && t.Key == old.Key && slices.Equal(t.Spec.GetHosts(), old.Spec.GetHosts())
	})
}

// slicedOf returns the points in the EndpointSlices of a service that add weight.
func (x *Index) slicedOf(l Load, read func(Read)) (n int) {
	for _, h := range l.served {
		read(Read{target: target{host: h}})
		n = min(most, n+countedSliced(x.sliced[target{namespace: l.key.Namespace, host: h}]))
	}
	return n
}

// endpointsOf returns the points of a host that a rule names. The result near counts the rule's namespace, and the
// result all counts all namespaces.
func (x *Index) endpointsOf(host string, l Load) (near, all int) {
	t := counted("", host)
	all = x.endpoints[t]
	t.namespace = l.key.Namespace
	return x.endpoints[t], all
}

// endpointsWith returns the points of a host in a namespace, as if the record of l had the given points instead of its
// present points.
func (x *Index) endpointsWith(t target, l Load, points int) int {
	change := points - x.points[l.key]
	if len(l.sliced) == 0 {
		return x.endpoints[t] + change
	}
	s := x.sliced[t]
	return x.endpoints[t] - countedSliced(s) + countedSliced(s+change)
}

// repeated returns the KiB that subsets in DestinationRules of the same namespace add for the endpoints of a record.
// Each subset contains all endpoints of its host. The amount that the rules' own weights already contain is subtracted.
func (x *Index) repeated(l Load, hosts []string, points int, read func(Read)) (sum int) {
	for _, h := range hosts {
		read(Read{target: target{host: h}}) // reported by Index.spread if the host's endpoints change
		t := target{namespace: l.key.Namespace, host: h}
		all := x.endpointsWith(t, l, points)
		x.rulesOf(l.key.Namespace, h, read, func(r *rules) {
			sum = min(most, sum+max(0, min(times(r.subsets, points), times(r.subsets, all)-r.copied)))
		})
	}
	return sum / perEndpoint
}
