package weight

import (
	"math/bits"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/smallset"
)

// selectors contains sums for one label. The sums cover the services (ServiceEntries and Kubernetes Services) that
// select WorkloadEntries by the label, and the subsets of their hosts. The weight of each service includes a fixed
// number of WorkloadEntries (Index.room). Each WorkloadEntry beyond this number adds one endpoint for each host and
// port of the service.
type selectors struct {
	chosen map[model.Key]choice
	sums   map[int]Weight // sums of choice.copies, by choice.room
}

// choice is one service as it was added, or a DestinationRule whose subsets contain the endpoints of such services.
type choice struct {
	room   int    // number of WorkloadEntries that its weight includes
	copies Weight // number of hosts multiplied by ports; for a DestinationRule, also multiplied by subsets
	hosts  []string
	ports  int
}

// selected returns the label with the smallest key in the selector of a service. All WorkloadEntries that the service
// selects have this label. The result is empty without a selector, and for resolution NONE.
func selected(s *model.Service) (first label) {
	if s.Spec.GetResolution() == model.Resolution_RESOLUTION_NONE {
		return label{}
	}
	for k, v := range s.Spec.GetSelector() {
		if first == (label{}) || k < first.key {
			first = label{s.Key.Namespace, k, v}
		}
	}
	return first
}

// machine returns the labels of a WorkloadEntry, in no particular order. For a Pod it returns nil, because Pods have no
// weight.
func machine(w *model.Workload) (all []label) {
	if !w.Spec.FromEntry() {
		return nil
	}
	for k, v := range w.Spec.GetEndpoint().GetLabels() {
		all = append(all, label{w.Key.Namespace, k, v})
	}
	return all
}

// step rounds up to a number that has zeros after its first three binary digits. The result is at most a quarter larger
// than the argument. Therefore the rounded number of WorkloadEntries changes only four times while their number
// doubles.
func step(n int) int {
	zeros := max(0, bits.Len(uint(n))-3)
	return (n + 1<<zeros - 1) >> zeros << zeros
}

// room returns the number of WorkloadEntries that the weight of a service includes if the service is added now. It is
// the number of WorkloadEntries with the service's label, plus one, rounded up (step).
func (x *Index) room(at label) int { return step(x.machines[at] + 1) }

// selecting returns the KiB of the endpoints that a service selects, given the number of WorkloadEntries (Index.room).
func selecting(l Load, room int) int { return times(len(l.served)*l.ports, room) / perEndpoint }

// selected returns the weight that a WorkloadEntry with the label adds. A service counts if its weight includes fewer
// WorkloadEntries than the present result of room. Parts of a KiB are rounded up, because there may be many
// WorkloadEntries.
func (x *Index) selected(at label) Weight {
	s := x.selectors[at]
	if s == nil {
		return Weight{}
	}
	var sum Weight
	for room, copies := range s.sums {
		if room < x.room(at) {
			sum = sum.Plus(copies)
		}
	}
	const up = perEndpoint - 1
	return Weight{(sum.Exported + up) / perEndpoint, (sum.Own + up) / perEndpoint}
}

// countMachine counts a WorkloadEntry that is added (sign 1) or removed (-1).
func (x *Index) countMachine(w *model.Workload, sign int) {
	for _, at := range machine(w) {
		before := x.room(at)
		add(x.machines, at, sign)
		if room := x.room(at); room != before {
			if s := x.selectors[at]; s != nil {
				for key, c := range s.chosen {
					x.setEndpoints(key, c.hosts, c.ports*room)
				}
			}
			x.changed(Read{label: at})
		}
	}
}

// addSelecting adds a service to the selectors of the label by which it selects.
func (x *Index) addSelecting(l Load) {
	if l.selects == (label{}) {
		return
	}
	room, ports := x.room(l.selects), len(l.served)*l.ports
	for _, h := range l.served {
		x.rulesOf(l.key.Namespace, h, func(Read) {}, func(r *rules) { ports = min(most, ports+times(r.subsets, l.ports)) })
	}
	x.setEndpoints(l.key, l.served, l.ports*room)
	x.addChoice(l.selects, l.key, choice{room, of(ports, l.exported), l.served, l.ports})
}

// addChoice adds a choice to the selectors of a label.
func (x *Index) addChoice(at label, key model.Key, c choice) {
	s := x.selectors[at]
	if s == nil {
		s = &selectors{map[model.Key]choice{}, map[int]Weight{}}
		x.selectors[at] = s
	}
	s.chosen[key], s.sums[c.room] = c, s.sums[c.room].Plus(c.copies)
	x.choices[key] = append(x.choices[key], at)
	for _, h := range c.hosts {
		for _, t := range targets(at.namespace, h) {
			if x.hosts[t] == nil {
				x.hosts[t] = &smallset.Set[model.Key]{}
			}
			x.hosts[t].Add(key)
		}
	}
	x.changed(Read{label: at})
}

// targets returns the targets under which a host of a namespace is counted. These are the host itself, each domain
// above it that indexed returns, and the target of all hosts.
func targets(namespace, host string) []target {
	all := []target{{namespace: namespace, host: host}, {namespace: namespace, wildcard: true}}
	for domain := indexed("." + host); domain != ""; domain = indexed(domain[1:]) {
		if len(domain) < len(host) {
			all = append(all, target{namespace, domain, true})
		}
	}
	return all
}

// addSubsets adds a DestinationRule to the selectors of the services for its host. The subsets of the DestinationRule
// grow with each WorkloadEntry that these services select.
func (x *Index) addSubsets(l Load) {
	if l.subsets == 0 {
		return
	}
	services := x.hosts[counted(l.key.Namespace, l.hosts[0])]
	if services == nil {
		return
	}
	t, ports := targetOf("", l.hosts[0]), map[label]int{}
	for key := range services.All() {
		for _, at := range x.choices[key] {
			c := x.selectors[at].chosen[key]
			for _, h := range c.hosts {
				if h == t.host || t.wildcard && strings.HasSuffix(h, t.host) {
					ports[at] = min(most, ports[at]+times(l.subsets, c.ports))
				}
			}
		}
	}
	for at, n := range ports {
		x.addChoice(at, l.key, choice{room: x.room(at), copies: of(n, l.exported)})
	}
}

// removeSelecting removes a service or a DestinationRule from all sums that contain it.
func (x *Index) removeSelecting(key model.Key) {
	for _, at := range x.choices[key] {
		s := x.selectors[at]
		c := s.chosen[key]
		delete(s.chosen, key)
		for _, h := range c.hosts {
			for _, t := range targets(at.namespace, h) {
				if of := x.hosts[t]; of != nil && of.Remove(key) {
					delete(x.hosts, t)
				}
			}
		}
		x.setEndpoints(key, c.hosts, 0)
		if s.sums[c.room] = s.sums[c.room].Minus(c.copies); s.sums[c.room] == (Weight{}) {
			delete(s.sums, c.room)
		}
		if len(s.chosen) == 0 {
			delete(x.selectors, at)
		}
		x.changed(Read{label: at})
	}
	delete(x.choices, key)
}
