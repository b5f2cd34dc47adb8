package weight

import (
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// Index has what weights read of other records, and follows these record by record. It belongs to one goroutine.
type Index struct {
	// Changed is called with each Read whose answer may be another since; nil: is not called.
	Changed func(Read)

	together  bool              // rules count for services and delegates of every namespace
	clusters  map[target]int    // by host, and of all hosts below a domain; namespace "": of all namespaces
	http      map[uint32]int    // ports of HTTP services, by number: each number has one listener
	opaque    int               // listeners of other ports: one for each address
	sniffed   int               // of these, those that may have HTTP
	rules     map[target]*rules // by what they are for
	applied   map[model.Key]applied
	delegates map[model.Key]Load
	roots     map[model.Key]*roots            // of each delegate, whether the delegate is there or not
	endpoints map[target]int                  // by ports: stated, and selected as they were weighed; targets as of clusters
	points    map[model.Key]int               // of each record that endpoints counts, those of each of its hosts
	machines  map[label]int                   // WorkloadEntries
	selectors map[string]map[label]*selectors // by namespace: ServiceEntries that select them
}

// target is a host of a namespace; of a wildcard, what follows the star.
type target struct {
	namespace, host string
	wildcard        bool
}

// Read is one fact about the mesh that the weight of a record depends on.
type Read struct {
	target
	delegate model.Key
	label    label
}

// every is the Read of what the whole mesh has.
var every = Read{target: target{wildcard: true}}

// rules sums up the rules of one target: the KiB for each cluster, and those that their own weights have counted.
type rules struct {
	each, counted   int
	subsets, copied int               // the endpoints of their hosts that their own weights have counted, once for each subset
	uses            map[model.Key]int // matches that name a delegate
}

// roots sums up the rules that name one delegate: matches by target, those that are for no service, and the KiB that
// their own weights have counted.
type roots struct {
	matches         map[target]int
	copies, counted map[string]int // by namespace
}

// applied is one rule as it was added.
type applied struct {
	load    Load
	counted []int // KiB of its hosts
	copied  []int // endpoints of its hosts
	named   []int // KiB of its uses
}

// NewIndex returns the index of no records.
func NewIndex() *Index {
	return &Index{clusters: map[target]int{}, http: map[uint32]int{}, rules: map[target]*rules{}, applied: map[model.Key]applied{},
		delegates: map[model.Key]Load{}, roots: map[model.Key]*roots{},
		endpoints: map[target]int{}, points: map[model.Key]int{}, machines: map[label]int{}, selectors: map[string]map[label]*selectors{}}
}

// NewTogether returns the index of no records for whoever has no tenants: what a rule multiplies counts whatever its
// namespace is.
func NewTogether() *Index {
	x := NewIndex()
	x.together = true
	return x
}

// Order returns the place of a record among others that are added: multiplied records, the lowest, come before the
// records that multiply them. It returns Ignored if no weight depends on the record.
func Order(r model.Record) int {
	switch t := r.(type) {
	case *model.Workload:
		if t.Spec.FromEntry() {
			return 0
		}
	case *model.Endpoints:
		if Stated(t.Key) {
			return 1
		}
	case *model.Service:
		return 1
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

// Ignored is the last Order.
const Ignored = 4

// Replace follows a change: old records are no longer there, and now is.
func (x *Index) Replace(old, now []model.Record) {
	for _, r := range old {
		switch t := r.(type) {
		case *model.Workload:
			x.countMachine(t, -1)
		case *model.Endpoints:
			x.setEndpoints(t.Key, t.Spec.GetHosts(), 0)
		case *model.Service:
			x.serve(t, -1)
			x.removeSelecting(t.Key)
		case *model.DestinationRule, *model.VirtualService:
			x.withdraw(r.Meta().Key)
		}
	}
	for _, r := range now {
		switch t := r.(type) {
		case *model.Workload:
			x.countMachine(t, 1)
		case *model.Endpoints:
			if Stated(t.Key) {
				l := Measure(t)
				x.setEndpoints(l.key, l.stated, l.points)
			}
		case *model.Service:
			x.serve(t, 1)
			x.addSelecting(Measure(t))
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

// maxLabels bounds the domains that a host counts for.
const maxLabels = 6

// indexed is the domain, of those that a host counts for, below which is all that is below this one.
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

// counted is the target whose clusters are counted for those of a host: of a wildcard, the domain that it is below.
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

// spread counts n for each target of hosts.
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
		count(target{host: h})
		count(target{wildcard: true})
		for domain := indexed("." + h); domain != ""; domain = indexed(domain[1:]) {
			if len(domain) < len(h) {
				count(target{host: domain, wildcard: true})
			}
		}
	}
}

// listen counts the listeners of a port: HTTP ports of one number share one, others have one for each address.
func (x *Index) listen(p *model.ServicePort, addresses, sign int) {
	if isHTTP(p) {
		add(x.http, p.GetNumber(), sign)
		return
	}
	if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO {
		x.sniffed += sign * addresses
	}
	x.opaque += sign * addresses
}

// copies returns how many resources of each family the mesh has.
func (x *Index) copies() [families]int {
	return [families]int{once: 1, perCluster: x.clusters[every.target], perListener: len(x.http) + x.opaque, perHTTP: len(x.http) + x.sniffed}
}

func add[K comparable](to map[K]int, key K, n int) {
	if to[key] += n; to[key] == 0 {
		delete(to, key)
	}
}

// apply adds a rule. For which hosts of a wildcard it has been weighed is not known: it counts for each that comes.
func (x *Index) apply(l Load) {
	a := applied{load: l, named: make([]int, len(l.uses)), counted: make([]int, len(l.hosts)), copied: make([]int, len(l.hosts))}
	copies := l.copies
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
	delete(x.applied, key)
	x.count(a, -1)
}

// count adds a rule to the sums of its hosts and of the delegates that it names.
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
		x.changed(Read{target: t})
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

// space is the namespace whose rules count together.
func (x *Index) space(namespace string) string {
	if x.together {
		return ""
	}
	return namespace
}

// delegateChanged reports what weighs otherwise once a delegate has come or gone: rules that name it, and services that
// these are for.
func (x *Index) delegateChanged(key model.Key) {
	x.changed(Read{delegate: key})
	if sum := x.roots[key]; sum != nil && x.Changed != nil {
		for t := range sum.matches {
			x.changed(Read{target: t})
		}
	}
}

// reaches reports whether a delegate is exported to the namespace of a rule.
func reaches(exportTo []string, from, to string) bool {
	return from == to || len(exportTo) == 0 || slices.Contains(exportTo, "*") || slices.Contains(exportTo, to)
}
