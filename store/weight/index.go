package weight

import (
	"iter"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/smallset"
)

// Index contains the facts about all records on which weights depend. A weight is an estimate of the memory for one
// record. Replace updates the facts. NewIndex or NewTogether makes an Index. An Index is not safe for concurrent use.
type Index struct {
	// Changed is called by Replace with each fact (Read) that may have changed. A nil Changed is not called. A fact may
	// be reported several times, and before Replace has applied the whole change. Changed must not call methods of the
	// Index.
	Changed func(Read)

	together  bool              // rules of every namespace count for all services and delegates
	clusters  map[target]int    // number by host, and by domain for all hosts below it; namespace "": in all namespaces
	http      map[uint32]int    // number of HTTP ports, by port number; all ports of one number share a listener
	opaque    int               // number of listeners of other ports, one for each address
	sniffed   int               // number of the opaque listeners that may carry HTTP
	rules     map[target]*rules // by the hosts that they cover
	applied   map[model.Key]applied
	delegates map[model.Key]Load
	roots     map[model.Key]*roots // of each delegate that a rule names; the delegate may be missing
	gateways  map[model.Key]gateway
	bound     map[model.Key]*bound
	// endpoints is the number of endpoints times ports, by target as in clusters. It covers the endpoints in the specs
	// of ServiceEntries, and the WorkloadEntries that services select (Index.room). Of EndpointSlices, it covers the
	// number that countedSliced returns.
	endpoints map[target]int
	sliced    map[target]int                      // endpoints times ports in EndpointSlices, by host and namespace
	points    map[model.Key]int                   // endpoints times ports that each record adds for each of its hosts
	machines  map[label]int                       // number of WorkloadEntries by label
	selectors map[label]*selectors                // services that select WorkloadEntries by a label
	choices   map[model.Key][]label               // labels in selectors of each service and DestinationRule
	hosts     map[target]*smallset.Set[model.Key] // services in selectors, by target, only in their own namespace
}

// target is a host in a namespace. For a wildcard, host is the part after the star.
type target struct {
	namespace, host string
	wildcard        bool
}

// Read identifies one fact about the mesh on which weights depend. It is comparable. Weigh reports the facts that it
// has read, and Index.Changed receives the facts that may have changed. A caller compares both to find the weights to
// compute again.
type Read struct {
	target
	delegate model.Key // or a Gateway
	label    label
}

// readOf returns the Read of the rules of a target. The Read of a wildcard contains at most the last maxLabels labels
// of its domain, without a partial label after the star. A host of 120 labels therefore depends on few facts.
func readOf(t target) Read {
	if t.wildcard {
		t.host = indexed(t.host)
	}
	return Read{target: t}
}

// every is the Read of facts about the whole mesh.
var every = Read{target: target{wildcard: true}}

// rules holds sums over the rules of one target. A rule is a DestinationRule, or a VirtualService that is not a
// delegate. The field each is KiB per cluster. The field counted is the KiB that the rules' own weights already
// contain.
type rules struct {
	each, counted   int
	subsets, copied int               // copied: number of endpoints in the rules' own weights, once for each subset
	uses            map[model.Key]int // number of matches, by the delegate that they lead to
}

// roots holds sums over the rules that name one delegate. The field matches is the number of matches. The field copies
// is the number of copies that do not depend on services. The field counted is the KiB that the rules' weights already
// contain.
type roots struct {
	matches         map[target]int
	copies, counted map[string]int // by namespace
}

// applied is one rule as it was added.
type applied struct {
	load    Load
	counted []int // KiB in the rule's weight, for each of its hosts
	copied  []int // endpoints in the rule's weight, for each of its hosts
	named   []int // KiB in the rule's weight, for each of its uses
	at      []int // virtual hosts in the rule's weight, for each of its Gateways
}

// NewIndex returns an index without records. In the index, DestinationRules, VirtualServices and delegates add only to
// the weights of services of their own namespace.
func NewIndex() *Index {
	return &Index{clusters: map[target]int{}, http: map[uint32]int{}, rules: map[target]*rules{}, applied: map[model.Key]applied{},
		delegates: map[model.Key]Load{}, roots: map[model.Key]*roots{},
		gateways: map[model.Key]gateway{}, bound: map[model.Key]*bound{},
		endpoints: map[target]int{}, sliced: map[target]int{}, points: map[model.Key]int{}, machines: map[label]int{},
		selectors: map[label]*selectors{}, choices: map[model.Key][]label{}, hosts: map[target]*smallset.Set[model.Key]{}}
}

// NewTogether returns an index without records. In the index, DestinationRules, VirtualServices and delegates add to
// the weights of services of all namespaces.
func NewTogether() *Index {
	x := NewIndex()
	x.together = true
	return x
}

// Order returns the phase in which a record must be added to an index, from 0 to 3. For example, services come before
// the VirtualServices and DestinationRules whose weights multiply by the number of the services' clusters. Order
// returns Ignored for nil, and if the weights of other records do not depend on the record.
func Order(r model.Record) int {
	switch t := r.(type) {
	case *model.Workload:
		if t.Spec.FromEntry() {
			return 0
		}
	case *model.Endpoints:
		return 1
	case *model.Service:
		return 1
	case *model.Gateway:
		return 2
	case *model.VirtualService:
		if len(t.Spec.GetHosts()) == 0 {
			return 2
		}
		return 3
	case *model.DestinationRule:
		return 3
	}
	return Ignored
}

// Ignored is the largest result of Order. Records with this Order need not be passed to Replace.
const Ignored = 4

// Replace applies a change. It removes the records of the first list, and then adds the records of the second list. The
// records of the first list must be the same as when they were added. The second list must be in ascending Order. A
// record that changes is in both lists. Records whose Order is Ignored have no effect. Added records must not be
// modified afterwards, because the Index refers to parts of them.
func (x *Index) Replace(old, now []model.Record) {
	for _, r := range old {
		switch t := r.(type) {
		case *model.Workload:
			x.countMachine(t, -1)
		case *model.Endpoints:
			if Stated(t.Key) {
				x.setEndpoints(t.Key, t.Spec.GetHosts(), 0)
			} else if !replaced(t, now) {
				x.setSliced(t.Key, t.Spec.GetHosts(), 0)
			}
		case *model.Service:
			x.serve(t, -1)
			x.removeSelecting(t.Key)
		case *model.Gateway:
			delete(x.gateways, t.Key)
			x.changed(Read{delegate: t.Key})
		case *model.DestinationRule, *model.VirtualService:
			x.withdraw(r.Meta().Key)
		}
	}
	for _, r := range now {
		switch t := r.(type) {
		case *model.Workload:
			x.countMachine(t, 1)
		case *model.Endpoints:
			if l := Measure(t); Stated(t.Key) {
				x.setEndpoints(l.key, l.stated, l.points)
			} else {
				x.setSliced(l.key, l.sliced, l.points)
			}
		case *model.Service:
			x.serve(t, 1)
			x.addSelecting(Measure(t))
		case *model.Gateway:
			x.gateways[t.Key] = Measure(t).gateway
			x.changed(Read{delegate: t.Key})
		case *model.DestinationRule, *model.VirtualService:
			if l := Measure(r); l.delegate {
				x.delegates[l.key] = l
				x.delegateChanged(l.key)
			} else {
				x.apply(l)
			}
		}
	}
}

func (x *Index) changed(r Read) {
	if x.Changed != nil {
		x.Changed(r)
	}
}

// maxLabels is the largest number of domains in which a host is counted.
const maxLabels = 6

// indexed returns the longest suffix of domain that begins with a dot and has at most maxLabels labels, or an empty
// string.
func indexed(domain string) string {
	at := strings.IndexByte(domain, '.')
	if at < 0 {
		return ""
	}
	for domain = domain[at:]; strings.Count(domain, ".") > maxLabels; {
		domain = domain[1+strings.IndexByte(domain[1:], '.'):]
	}
	return domain
}

// targetOf returns the target of a host of a rule in a namespace.
func targetOf(namespace, host string) target {
	rest, wildcard := strings.CutPrefix(host, "*")
	return target{namespace, rest, wildcard}
}

// targetsOver yields the targets of a namespace that cover a host. These are the host itself, and the wildcards that
// match it.
func targetsOver(namespace, host string) iter.Seq[target] {
	return func(yield func(target) bool) {
		if !yield(target{namespace, host, false}) {
			return
		}
		for i := range len(host) + 1 {
			if (i == len(host) || host[i] == '.' || host[i] == '-') && !yield(target{namespace, host[i:], true}) {
				return
			}
		}
	}
}

// counted returns the target under which the clusters of a host are counted. For a wildcard, it is the target of the
// domain that contains the wildcard.
func counted(namespace, host string) target {
	t := targetOf(namespace, host)
	if t.wildcard {
		t.host = indexed(t.host)
	}
	return t
}

func (x *Index) serve(s *model.Service, sign int) {
	ports := sign * Ports(s)
	for _, p := range s.Spec.GetPorts() {
		x.listen(p, max(1, len(s.Spec.GetAddresses())), sign)
	}
	x.spread(x.clusters, s.Key.Namespace, s.Spec.GetHosts(), ports)
}

// spread adds n to the sums in a map for each target of the hosts, in the namespace and in all namespaces.
func (x *Index) spread(to map[target]int, namespace string, hosts []string, n int) {
	count := func(t target) {
		for _, of := range []string{"", namespace} {
			t.namespace = of
			add(to, t, n)
		}
		t.namespace = ""
		x.changed(Read{target: t})
	}
	for _, h := range hosts {
		for _, t := range targets("", h) {
			count(t)
		}
	}
}

// listen adds the listeners of a port to the sums (sign 1), or removes them (-1). HTTP ports of one number share a
// listener. Any other port has a listener for each address.
func (x *Index) listen(p *model.ServicePort, addresses, sign int) {
	if p.GetProtocol().IsHTTP() {
		add(x.http, p.GetNumber(), sign)
		return
	}
	if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO {
		x.sniffed += sign * addresses
	}
	x.opaque += sign * addresses
}

// copies returns the number of resources of each family in the mesh.
func (x *Index) copies() [families]int {
	return [families]int{once: 1, perCluster: x.clusters[every.target], perListener: len(x.http) + x.opaque, perHTTP: len(x.http) + x.sniffed}
}

func add[K comparable](to map[K]int, key K, n int) {
	if to[key] += n; to[key] == 0 {
		delete(to, key)
	}
}

// apply adds a rule. The weight of a wildcard rule is not divided by host, so counted and copied stay zero for wildcard
// hosts.
func (x *Index) apply(l Load) {
	a := applied{load: l, named: make([]int, len(l.uses)), counted: make([]int, len(l.hosts)), copied: make([]int, len(l.hosts))}
	for _, key := range l.gateways {
		a.at = append(a.at, max(len(l.names), x.met(x.gateways[key], l)))
	}
	a.load.copies = x.copiesOf(l, nil)
	copies := a.load.copies
	for i, h := range l.hosts {
		covered := x.covered(h, l, nil)
		copies += covered.all
		if !strings.HasPrefix(h, "*") {
			near, _ := x.endpointsOf(h, l)
			a.copied[i] = times(l.subsets, near)
			a.counted[i] = times(l.each+x.delegated(l, nil), covered.of(l))
		}
	}
	for i, u := range l.uses {
		a.named[i] = times(times(x.eachOf(u.delegate, l.key.Namespace), u.matches), copies)
	}
	x.addSubsets(l)
	x.bind(l, true)
	x.applied[l.key] = a
	x.count(a, 1)
}

func (x *Index) withdraw(key model.Key) {
	if _, is := x.delegates[key]; is {
		delete(x.delegates, key)
		x.delegateChanged(key)
		return
	}
	a := x.applied[key]
	x.removeSelecting(key)
	x.bind(a.load, false)
	delete(x.applied, key)
	x.count(a, -1)
}

// count adds a rule to the sums of its hosts and delegates (sign 1), or removes it (-1).
func (x *Index) count(a applied, sign int) {
	namespace := x.space(a.load.key.Namespace)
	for i, h := range a.load.hosts {
		t := targetOf(namespace, h)
		sum := x.rules[t]
		if sum == nil {
			sum = &rules{uses: map[model.Key]int{}}
			x.rules[t] = sum
		}
		sum.each, sum.counted = sum.each+sign*a.load.each, sum.counted+sign*a.counted[i]
		sum.subsets, sum.copied = sum.subsets+sign*a.load.subsets, sum.copied+sign*a.copied[i]
		for _, u := range a.load.uses {
			add(sum.uses, u.delegate, sign*u.matches)
		}
		if sum.each == 0 && sum.counted == 0 && sum.subsets == 0 && sum.copied == 0 && len(sum.uses) == 0 {
			delete(x.rules, t)
		}
		x.changed(readOf(t))
	}
	for i, u := range a.load.uses {
		sum := x.roots[u.delegate]
		if sum == nil {
			sum = &roots{map[target]int{}, map[string]int{}, map[string]int{}}
			x.roots[u.delegate] = sum
		}
		for _, h := range a.load.hosts {
			add(sum.matches, targetOf(namespace, h), sign*u.matches)
		}
		add(sum.copies, namespace, sign*u.matches*a.load.copies)
		add(sum.counted, namespace, sign*a.named[i])
		if len(sum.matches)+len(sum.copies)+len(sum.counted) == 0 {
			delete(x.roots, u.delegate)
		}
		x.changed(Read{delegate: u.delegate})
	}
}

// space returns the namespace under which rules are summed up. It is the given namespace, or the empty text for all
// namespaces in an Index of NewTogether.
func (x *Index) space(namespace string) string {
	if x.together {
		return ""
	}
	return namespace
}

// delegateChanged reports the facts that change with a delegate. These are about the delegate, and about the targets of
// the rules that name it.
func (x *Index) delegateChanged(key model.Key) {
	x.changed(Read{delegate: key})
	if sum := x.roots[key]; sum != nil && x.Changed != nil {
		for t := range sum.matches {
			x.changed(readOf(t))
		}
	}
}

// reaches reports whether a delegate with the given exportTo list is exported to a rule. The parameter from is the
// namespace of the delegate, and the parameter to is the namespace of the rule.
func reaches(exportTo []string, from, to string) bool {
	return from == to || len(exportTo) == 0 || slices.Contains(exportTo, "*") || slices.Contains(exportTo, to)
}
