package plan

import (
	"maps"
	"slices"
	"sync"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// complainer is a Spec that knows what it is drawn without.
type complainer interface{ Problems() []error }

// inquiry is what to ask the builders about. It holds nothing that changes, and what it holds is told apart and asked in any goroutine:
// that takes as long as planning everything, and must not hold up the plan.
type inquiry struct {
	snapshot  *mirror.Snapshot // nil: there is nothing to ask
	mesh      model.Key
	hosts     []table[host]
	specs     []pool.ResourceSpec // of scopes, beside hosts
	workloads []*workload         // each is planned once, as a whole
	found     []problems          // what the plan itself has found
}

type ask struct {
	blame model.Key
	find  func() []error
}

// inquire takes what is planned as it is: that is work for each scope, not for each host.
func (p *Planner) inquire() inquiry {
	q := inquiry{snapshot: p.input.Snapshot, mesh: p.input.mesh.Key}
	for _, s := range p.scopes {
		q.hosts = append(q.hosts, s.hosts.fork())
		q.specs = slices.AppendSeq(q.specs, maps.Values(s.specs))
		q.found = append(q.found, maps.Clone(s.problems))
	}
	for _, wl := range p.workloads {
		q.workloads = append(q.workloads, wl)
	}
	return q
}

// asks are the Specs and records to ask about, each once, and whom to blame: of everything that is planned, and of all rules and patches,
// planned or not. What scopes share is looked at once.
func (q *inquiry) asks() map[any]ask {
	asks := map[any]ask{}
	if q.snapshot == nil {
		return asks
	}
	add := func(spec pool.ResourceSpec, blame model.Key) {
		if s, ok := spec.(complainer); ok {
			asks[spec] = ask{blame, s.Problems}
		}
	}
	seen := map[*host]bool{}
	for _, hosts := range q.hosts {
		for _, h := range hosts.all() {
			if seen[h] {
				continue
			}
			seen[h] = true
			for _, c := range h.clusters {
				add(c.spec, h.svc.Key)
			}
		}
	}
	for _, spec := range q.specs {
		add(spec, q.mesh)
	}
	for _, wl := range q.workloads {
		for _, spec := range wl.specs {
			add(spec, q.mesh)
		}
		q.found = append(q.found, problems{"": wl.found})
	}
	for r := range q.snapshot.All(model.KindVirtualService) {
		asks[r] = ask{r.Meta().Key, func() []error { return vhost.Problems(r.(*model.VirtualService)) }}
	}
	for r := range q.snapshot.All(model.KindEnvoyFilter) {
		asks[r] = ask{r.Meta().Key, func() []error { return patchProblems(r.(*model.EnvoyFilter)) }}
	}
	return asks
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
	asks := q.asks()
	now := make(map[any][]Problem, len(asks))
	sets := q.found
	for key, ask := range asks {
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
