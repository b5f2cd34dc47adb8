package weight

import "navarch.io/navarch/store/model"

// setEndpoints sets the number of endpoints times ports that a record adds to each of its hosts; 0: the record is
// removed.
func (x *Index) setEndpoints(key model.Key, hosts []string, points int) {
	was := x.points[key]
	if was == points {
		return
	}
	add(x.points, key, points-was)
	x.spread(x.endpoints, key.Namespace, hosts, points-was)
}

// endpointsOf returns the numbers of endpoints (times ports) of a rule's host: near in the rule's namespace, and all in
// all namespaces.
func (x *Index) endpointsOf(host string, l Load) (near, all int) {
	t := counted("", host)
	all = x.endpoints[t]
	t.namespace = l.key.Namespace
	return x.endpoints[t], all
}

// repeated returns the KiB that subsets of the same namespace add for the endpoints of a record, because each subset
// contains all endpoints of its host. The amount in the weights of the rules is subtracted.
func (x *Index) repeated(l Load, hosts []string, points int, read func(Read)) (sum int) {
	for _, h := range hosts {
		t := target{namespace: l.key.Namespace, host: h}
		all := x.endpoints[t] - x.points[l.key] + points
		x.rulesOf(l.key.Namespace, h, read, func(r *rules) {
			sum = min(most, sum+max(0, min(times(r.subsets, points), times(r.subsets, all)-r.copied)))
		})
	}
	return sum / perEndpoint
}
