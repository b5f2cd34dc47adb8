package plan

import (
	"maps"
	"sync"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/model"
)

// complainer is a Spec that knows what it is drawn without.
type complainer interface{ Problems() []error }

// inquiry is what to ask the builders: each Spec or record once, and whom to blame. It holds nothing that changes, so it
// may be answered in any goroutine: drawing everything anew takes as long as planning it, and must not hold up the plan.
type inquiry struct {
	asks  map[any]ask
	found []problems // what the plan itself has found
}

type ask struct {
	blame model.Key
	find  func() []error
}

// inquire gathers what to ask about everything that is planned, and about all rules and patches, planned or not.
func (p *Planner) inquire() inquiry {
	q := inquiry{asks: map[any]ask{}}
	add := func(spec pool.ResourceSpec, blame model.Key) {
		if s, ok := spec.(complainer); ok {
			q.asks[spec] = ask{blame, s.Problems}
		}
	}
	for _, s := range p.scopes {
		for _, h := range s.hosts.all() {
			for _, c := range h.clusters {
				add(c.spec, h.svc.Key)
			}
		}
		for _, spec := range s.specs {
			add(spec, p.input.mesh.Key)
		}
		q.found = append(q.found, maps.Clone(s.problems))
	}
	for _, wl := range p.workloads {
		for _, spec := range wl.specs {
			add(spec, p.input.mesh.Key)
		}
		q.found = append(q.found, problems{"": wl.found})
	}
	for r := range p.input.All(model.KindVirtualService) {
		q.asks[r] = ask{r.Meta().Key, func() []error { return vhost.Problems(r.(*model.VirtualService)) }}
	}
	for r := range p.input.All(model.KindEnvoyFilter) {
		q.asks[r] = ask{r.Meta().Key, func() []error { return patchProblems(r.(*model.EnvoyFilter)) }}
	}
	return q
}

// complaints remembers what the builders said when they were last asked, so that only what is new is asked again. Safe
// for concurrent use.
type complaints struct {
	mu   sync.Mutex
	said map[any][]Problem
}

// answer asks the builders what is not remembered, forgets what is not asked about any more, and returns everything, each
// once, by object.
func (c *complaints) answer(q inquiry) []Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := make(map[any][]Problem, len(q.asks))
	sets := q.found
	for key, ask := range q.asks {
		found, ok := c.said[key]
		if !ok {
			for _, err := range ask.find() {
				found = append(found, model.ProblemOf(err, ask.blame))
			}
		}
		now[key] = found
		sets = append(sets, problems{"": found})
	}
	c.said = now
	return sortedProblems(sets...)
}

func patchProblems(f *model.EnvoyFilter) (all []error) {
	for i := range f.Spec.GetConfigPatches() {
		if err := patch.Problem(model.Patch{Filter: f, Index: i}); err != nil {
			all = append(all, err)
		}
	}
	return all
}
