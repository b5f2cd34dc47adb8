package plan

import (
	"errors"
	"slices"
	"sync"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// incomplete is a Spec that can say which settings its resource is drawn without.
type incomplete interface{ Problems() []error }

// inquiry is everything whose builders are asked for problems. It holds nothing that changes, so the asking can be done by any goroutine: it takes as
// long as planning everything, and must not hold up the plan.
type inquiry struct {
	snapshot  *mirror.Snapshot // nil: there is nothing to ask
	mesh      model.Key
	hosts     []host.Frozen
	fronts    []front.Frozen
	specs     []pool.ResourceSpec // of scopes, beside hosts and fronts
	workloads []*workload         // each is planned once, as a whole
	found     []input.Problems    // what the plan itself has found
}

type ask struct {
	blame model.Key
	find  func() []error
}

// inquire takes what is planned as it is: that is work for each scope, not for each host.
func (p *Planner) inquire() inquiry {
	q := inquiry{snapshot: p.input.Snapshot, mesh: p.input.Mesh.Key}
	for _, s := range p.scopes {
		q.hosts, q.fronts = append(q.hosts, s.hosts.Freeze()), append(q.fronts, s.front.Freeze())
		s.layer.Specs(func(spec pool.ResourceSpec) { q.specs = append(q.specs, spec) })
		q.found = append(q.found, input.Problems{"": s.problems}, s.hosts.Problems().Clone(), s.front.Problems())
	}
	for _, wl := range p.workloads {
		q.workloads = append(q.workloads, wl)
	}
	q.found = append(q.found, input.Problems{"": unfetched(p.secrets.Unfetched())})
	return q
}

// asks are the Specs and records to ask about, each once, and whom to blame: of everything that is planned, and of all rules and patches,
// planned or not. What scopes share is looked at once.
func (q *inquiry) asks() map[any]ask {
	asks := map[any]ask{}
	if q.snapshot == nil {
		return asks
	}
	add := func(spec any, blame model.Key) {
		if p, ok := spec.(front.Patched); ok && !p.Patched() { // patches are all that it may be drawn without
			return // most are so, and what is not asked need not be remembered
		}
		if s, ok := spec.(incomplete); ok {
			asks[spec] = ask{blame, s.Problems}
		}
	}
	byMesh := func(spec pool.ResourceSpec) { add(spec, q.mesh) }
	host.Specs(q.hosts, func(spec pool.ResourceSpec, by model.Key) { add(spec, by) })
	for _, frozen := range q.fronts {
		frozen(func(spec any) { add(spec, q.mesh) })
	}
	for _, spec := range q.specs {
		byMesh(spec)
	}
	for _, wl := range q.workloads {
		wl.Specs(byMesh)
		q.found = append(q.found, input.Problems{"": slices.Clone(wl.Problems())})
	}
	q.found = append(q.found, input.Problems{"": unrunnable(q.workloads)})
	for r := range q.snapshot.All(model.KindVirtualService) {
		asks[r] = ask{r.Meta().Key, func() []error { return vhost.Problems(r.(*model.VirtualService)) }}
	}
	for r := range q.snapshot.All(model.KindEnvoyFilter) {
		asks[r] = ask{r.Meta().Key, func() []error { return patchProblems(r.(*model.EnvoyFilter)) }}
	}
	return asks
}

// reports remembers what the builders said when they were last asked, so that only what is new is asked again. Safe
// for concurrent use.
type reports struct {
	mu   sync.Mutex
	said map[any][]said
}

// said is a problem, and the resource that a patch is left out of for it; empty: it is another problem.
type said struct {
	Problem
	resource string
}

// answer asks the builders what is not remembered, forgets what is not asked about any more, and returns everything, each
// once, by object.
func (r *reports) answer(q inquiry) []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	asks := q.asks()
	now := make(map[any][]said, len(asks))
	sets, left := q.found, omissions{}
	for key, ask := range asks {
		found, ok := r.said[key]
		if !ok {
			for _, err := range ask.find() {
				one := said{Problem: model.ProblemOf(err, ask.blame)}
				if of := (patch.Left{}); errors.As(err, &of) {
					one.resource = of.Resource
				}
				found = append(found, one)
			}
		}
		now[key] = found
		var others []Problem
		for _, one := range found {
			if one.resource != "" {
				left.add(one)
			} else {
				others = append(others, one.Problem)
			}
		}
		sets = append(sets, input.Problems{"": others})
	}
	r.said = now
	return input.Sorted(append(sets, input.Problems{"": left.problems()})...)
}

// omissions are the problems of patches that are left out of resources, and of which: a patch of all virtual hosts may be left out of thousands, for one
// reason.
type omissions map[Problem]struct {
	first  string // of their names
	others bool
}

func (l omissions) add(one said) {
	of, known := l[one.Problem]
	switch {
	case !known:
		of.first = one.resource
	case of.first != one.resource:
		of.first, of.others = min(of.first, one.resource), true
	}
	l[one.Problem] = of
}

// problems are these, each once, with the first of the resources.
func (l omissions) problems() (all []Problem) {
	for one, of := range l {
		name := of.first
		if of.others {
			name += " and others"
		}
		one.Message = "left out of " + name + ": " + one.Message
		all = append(all, one)
	}
	return all
}

func patchProblems(f *model.EnvoyFilter) (all []error) {
	for i := range f.Spec.GetConfigPatches() {
		if err := patch.Problem(model.Patch{Filter: f, Index: i}); err != nil {
			all = append(all, err)
		}
	}
	return all
}
