package weight

import (
	"math/bits"
	"strings"

	"navarch.io/navarch/store/model"
)

// selectors sums up the ServiceEntries that select WorkloadEntries by one label. Each is weighed with as many as there
// are when it comes. A WorkloadEntry that comes later, beyond these, weighs one endpoint for each host and port.
type selectors struct {
	chosen map[model.Key]choice
	sums   map[int]Weight // hosts by ports, by the WorkloadEntries that they are weighed with
}

// choice is one ServiceEntry as it was added.
type choice struct {
	room   int
	copies Weight // hosts by ports
}

// selected returns the label that counts for a ServiceEntry, the first of its selector: whatever it selects has it.
// Services of Kubernetes are for Pods.
func selected(s *model.Service) (first label) {
	if s.Key.Kind != model.KindServiceEntry || s.Spec.GetResolution() == model.Resolution_RESOLUTION_NONE {
		return label{}
	}
	for k, v := range s.Spec.GetSelector() {
		if first == (label{}) || k < first.key {
			first = label{s.Key.Namespace, k, v}
		}
	}
	return first
}

func isMachine(w *model.Workload) bool {
	return strings.HasPrefix(w.Key.Name, model.WorkloadEntryPrefix)
}

// machine returns the labels of a WorkloadEntry; Pods have none here, so that they cost nothing as they come and go.
func machine(w *model.Workload) (all []label) {
	if !isMachine(w) {
		return nil
	}
	for k, v := range w.Spec.GetEndpoint().GetLabels() {
		all = append(all, label{w.Key.Namespace, k, v})
	}
	return all
}

// step rounds up to a number of three binary digits and zeros: at most a quarter more than there are. So the answer of a
// Read changes four times while WorkloadEntries double, and not with each that comes.
func step(n int) int {
	zeros := max(0, bits.Len(uint(n))-3)
	return (n + 1<<zeros - 1) >> zeros << zeros
}

// room is how many WorkloadEntries a ServiceEntry is weighed with: those that have its label, and at least one more.
func (x *Index) room(at label) int { return step(x.machines[at] + 1) }

// selecting returns the KiB of the endpoints that a ServiceEntry selects.
func selecting(l Load, room int) int { return times(len(l.served)*l.ports, room) / perEndpoint }

// selected returns what a WorkloadEntry adds to the ServiceEntries that were weighed with fewer. Parts of a KiB count as
// one: there may be many.
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

// join counts a WorkloadEntry that comes or goes.
func (x *Index) join(w *model.Workload, sign int) {
	for _, at := range machine(w) {
		before := x.room(at)
		add(x.machines, at, sign)
		if x.room(at) != before {
			x.changed(Read{label: at})
		}
	}
}

// choose adds a ServiceEntry to those that select by its label.
func (x *Index) choose(l Load) {
	if l.selects == (label{}) {
		return
	}
	s := x.selectors[l.selects]
	if s == nil {
		s = &selectors{map[model.Key]choice{}, map[int]Weight{}}
		x.selectors[l.selects] = s
	}
	c := choice{x.room(l.selects), of(len(l.served)*l.ports, l.exported)}
	s.chosen[l.key], s.sums[c.room] = c, s.sums[c.room].Plus(c.copies)
	x.changed(Read{label: l.selects})
}

func (x *Index) unselect(t *model.Service) {
	at := selected(t)
	s := x.selectors[at]
	if s == nil {
		return
	}
	c := s.chosen[t.Key]
	delete(s.chosen, t.Key)
	if s.sums[c.room] = s.sums[c.room].Minus(c.copies); s.sums[c.room] == (Weight{}) {
		delete(s.sums, c.room)
	}
	if len(s.chosen) == 0 {
		delete(x.selectors, at)
	}
	x.changed(Read{label: at})
}
