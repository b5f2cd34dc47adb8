package weight

import "navarch.io/navarch/store/model"

// Weigh estimates the memory for the record of l, given the other records in the index. It does not change the index.
// It calls the function read with each fact on which the weight depends, possibly several times. The function may be
// nil.
func (x *Index) Weigh(l Load, read func(Read)) Weight {
	if read == nil {
		read = func(Read) {}
	}
	sum := of(l.fixed, l.exported)
	for _, h := range l.served {
		sum = sum.Plus(of(x.dependent(l.key.Namespace, h, l.ports, read), l.exported))
	}
	if x.together {
		sum = sum.Plus(of(times(len(l.sliced), l.points)/perEndpoint+x.repeated(l, l.sliced, l.points, read), l.exported))
	} else { // the weights of services and rules contain the points of EndpointSlices beyond freeSliced
		sum = sum.Plus(of(x.slicedOf(l, read)/perEndpoint, l.exported))
	}
	if l.selects != (label{}) {
		read(Read{label: l.selects})
		room := x.room(l.selects)
		sum = sum.Plus(of(selecting(l, room)+x.repeated(l, l.served, l.ports*room, read), l.exported))
	}
	sum = sum.Plus(of(x.repeated(l, l.stated, l.points, read), l.exported))
	for _, at := range l.machine {
		read(Read{label: at})
		sum = sum.Plus(x.selected(at))
	}
	each := l.each + x.delegated(l, read)
	for _, h := range l.hosts {
		c := x.covered(h, l, read)
		sum = sum.Plus(of(times(each, c.of(l)), l.exported)).Plus(of(times(each, c.all-c.of(l)), false))
		near, all := x.endpointsOf(h, l)
		sum = sum.Plus(of(times(l.subsets, near)/perEndpoint, l.exported)).Plus(of(times(l.subsets, all-near)/perEndpoint, false))
	}
	sum = sum.Plus(of(times(each, x.copiesOf(l, read))+x.multiplied(l, read), l.exported))
	if l.delegate {
		sum = sum.Plus(of(x.beyond(l, read), true))
	}
	return sum.Plus(of(x.patches(l, read), false))
}

// Fixed returns a lower bound of the weight of loads: the parts that Measure computes from the records alone. Some
// parts that do not depend on other records are not included, such as the patches that an EnvoyFilter applies once.
func Fixed(loads []Load) (sum Weight) {
	for _, l := range loads {
		sum = sum.Plus(of(l.fixed, l.exported))
	}
	return sum
}

// of returns a Weight with the given KiB in its field Exported or Own, limited to the range from 0 to most.
func of(kib int, exported bool) Weight {
	if kib = min(max(kib, 0), most); exported {
		return Weight{Exported: kib}
	}
	return Weight{Own: kib}
}

// times returns the product of its arguments, limited to most.
func times(kib, n int) int {
	if n > 0 && kib > most/n {
		return most
	}
	return kib * n
}

// covering contains the numbers of clusters that a host of a rule covers. The field near counts the clusters in the
// rule's own namespace, and the field all counts all clusters.
type covering struct{ near, all int }

// of returns the number of clusters to which the rule applies at proxies of all namespaces. For a VirtualService these
// are all clusters, and for a DestinationRule only the clusters of its own namespace.
func (c covering) of(l Load) int {
	if l.key.Kind == model.KindDestinationRule {
		return c.near
	}
	return c.all
}

// covered returns the numbers of clusters of a host. For a host without clusters both numbers are 1, as for a service
// of one port.
func (x *Index) covered(host string, l Load, read func(Read)) covering {
	t := counted("", host)
	if read != nil {
		read(Read{target: t})
	}
	all := x.clusters[t]
	if t.namespace = l.key.Namespace; all == 0 {
		return covering{1, 1}
	}
	return covering{x.clusters[t], all}
}

// dependent returns the KiB that the rules of a namespace need for a host with this number of ports. In an index of
// NewTogether, the rules of all namespaces count. The amount that the rules' own weights already contain is subtracted.
func (x *Index) dependent(namespace, host string, ports int, read func(Read)) (sum int) {
	x.rulesOf(namespace, host, read, func(r *rules) {
		each := r.each
		for key, matches := range r.uses {
			each = min(most, each+times(x.eachOf(key, namespace), matches))
		}
		sum = min(most, sum+max(0, times(each, ports)-r.counted))
	})
	return sum
}

// rulesOf iterates over the targets (host or wildcard) that cover a host and have rules in the namespace. In an index
// of NewTogether, the rules of all namespaces count. rulesOf calls the function each once per target, with the sums
// over the target's rules.
func (x *Index) rulesOf(namespace, host string, read func(Read), each func(*rules)) {
	last := Read{label: label{key: "none"}}
	for t := range targetsOver(x.space(namespace), host) {
		if r := readOf(t); r != last {
			last = r
			read(r)
		}
		if r := x.rules[t]; r != nil {
			each(r)
		}
	}
}

// delegated returns the KiB that the delegates of a rule add to each copy of the rule.
func (x *Index) delegated(l Load, read func(Read)) (sum int) {
	for _, u := range l.uses {
		if read != nil {
			read(Read{delegate: u.delegate})
		}
		sum = min(most, sum+times(x.eachOf(u.delegate, l.key.Namespace), u.matches))
	}
	return sum
}

// eachOf returns the KiB of a delegate in one rule of a namespace, at least the KiB of one route. A missing delegate
// counts as one route, and so does a delegate that is not exported to the namespace. In an index of NewTogether, the
// exports of delegates have no effect.
func (x *Index) eachOf(delegate model.Key, namespace string) int {
	l, is := x.delegates[delegate]
	if !is || !x.together && !reaches(l.exportTo, delegate.Namespace, namespace) {
		return route
	}
	return max(route, l.each)
}

// beyond returns the KiB that a delegate adds to the rules of its own namespace. In an index of NewTogether, the rules
// of all namespaces count. The amount that the rules' own weights already contain is subtracted. A rule in another
// namespace does not count: its own weight includes its delegates, as they were when the rule was added.
func (x *Index) beyond(l Load, read func(Read)) int {
	read(Read{delegate: l.key})
	sum := x.roots[l.key]
	if sum == nil {
		return 0
	}
	namespace := x.space(l.key.Namespace)
	copies := sum.copies[namespace]
	for t, matches := range sum.matches {
		if t.namespace != namespace {
			continue
		}
		host := t.host
		if t.wildcard {
			host = "*" + host
		}
		copies += times(x.covered(host, l, read).all, matches)
	}
	return times(l.each, copies) - sum.counted[namespace]
}

// patches returns the KiB of the patches of a record. Each patch is applied to every resource that it matches, and adds
// its bytes to the resource.
func (x *Index) patches(l Load, read func(Read)) (sum int) {
	copies := x.copies()
	for family, p := range l.patched {
		if p.patches == 0 {
			continue
		}
		if family != once {
			read(every)
		}
		n := max(1, copies[family])
		sum = min(most, sum+p.patches+times(p.patches, n)/perPatch+times(p.bytes, n)/perByte)
	}
	return sum
}
