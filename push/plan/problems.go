package plan

import (
	"sync"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/model"
)

// incomplete is a Spec that knows what it is drawn without.
type incomplete interface{ Problems() []error }

// inquiry is what to ask the builders: each Spec or record once, and whom to blame. It holds nothing that changes, so it
// may be answered in any goroutine: drawing everything anew takes as long as planning it, and must not hold up the plan.
type inquiry struct {
	asks  map[any]ask
	found []input.Problems // what the plan itself has found
}

type ask struct {
	blame model.Key
	find  func() []error
}

// inquire gathers what to ask about everything that is planned, and about all rules and patches, planned or not.
func (p *Planner) inquire() inquiry {
	q := inquiry{asks: map[any]ask{}}
	add := func(spec pool.ResourceSpec, blame model.Key) {
		if s, ok := spec.(incomplete); ok {
			q.asks[spec] = ask{blame, s.Problems}
		}
	}
	byMesh := func(spec pool.ResourceSpec) { add(spec, p.input.Mesh.Key) }
	for _, s := range p.scopes {
		s.hosts.Specs(add)
		s.layer.Specs(byMesh)
		q.found = append(q.found, input.Problems{"": s.problems}, s.hosts.Problems().Clone(), s.front.Problems().Clone())
	}
	for _, wl := range p.workloads {
		wl.Specs(byMesh)
		q.found = append(q.found, input.Problems{"": wl.Problems()})
	}
	for r := range p.input.All(model.KindVirtualService) {
		q.asks[r] = ask{r.Meta().Key, func() []error { return vhost.Problems(r.(*model.VirtualService)) }}
	}
	for r := range p.input.All(model.KindEnvoyFilter) {
		q.asks[r] = ask{r.Meta().Key, func() []error { return patchProblems(r.(*model.EnvoyFilter)) }}
	}
	return q
}

// reports remembers what the builders said when they were last asked, so that only what is new is asked again. Safe
// for concurrent use.
type reports struct {
	mu   sync.Mutex
	said map[any][]Problem
}

// answer asks the builders what is not remembered, forgets what is not asked about any more, and returns everything, each
// once, by object.
func (r *reports) answer(q inquiry) []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make(map[any][]Problem, len(q.asks))
	sets := q.found
	for key, ask := range q.asks {
		found, ok := r.said[key]
		if !ok {
			for _, err := range ask.find() {
				found = append(found, input.ProblemOf(err, ask.blame))
			}
		}
		now[key] = found
		sets = append(sets, input.Problems{"": found})
	}
	r.said = now
	return input.Sorted(sets...)
}

func patchProblems(f *model.EnvoyFilter) (all []error) {
	for i := range f.Spec.GetConfigPatches() {
		if err := patch.Problem(model.Patch{Filter: f, Index: i}); err != nil {
			all = append(all, err)
		}
	}
	return all
}
