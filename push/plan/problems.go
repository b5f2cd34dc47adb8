package plan

import (
	"context"
	"errors"
	"slices"
	"sync"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// incomplete is a Spec that can list the settings that are left out of its resource. A Spec contains all inputs of one
// resource.
type incomplete interface{ Problems() []error }

// problemSources is an immutable snapshot of the Specs and records that are inspected for problems. Any goroutine may
// inspect it. The inspection takes as long as planning from scratch, so it must not run in the plan loop.
type problemSources struct {
	snapshot  *mirror.Snapshot // nil without a plan
	mesh      model.Key
	hosts     []host.Frozen
	fronts    []front.Frozen
	specs     []pool.ResourceSpec // Specs of scopes that belong to neither hosts nor fronts
	workloads []*workload         // immutable once planned
	found     []input.Problems    // the problems that the plan itself has found
	lacks     []secret.Lack
	root      string // root namespace
}

// query inspects one Spec or record for problems.
type query struct {
	blame model.Key // the object to which problems are attributed, unless a problem names another object
	find  func() []error
}

// problemSources returns a snapshot of the plan. Its cost grows with the number of scopes, not with the number of
// hosts. It contains only the scopes and workloads of the namespaces for which the function selects returns true. If
// selects is nil, it contains all scopes and workloads.
func (p *Planner) problemSources(selects func(namespace string) bool) problemSources {
	q := problemSources{snapshot: p.input.Snapshot, mesh: p.input.Mesh.Key}
	for key, s := range p.scopes {
		if selects != nil && !selects(key.Namespace) {
			continue
		}
		q.hosts, q.fronts = append(q.hosts, s.hosts.Freeze()), append(q.fronts, s.front.Freeze())
		s.layer.Specs(func(spec pool.ResourceSpec) { q.specs = append(q.specs, spec) })
		q.found = append(q.found, input.Problems{"": s.problems}, s.hosts.Problems().Clone(), s.front.Problems())
	}
	for key, wl := range p.workloads {
		if selects == nil || selects(key.Namespace) {
			q.workloads = append(q.workloads, wl)
		}
	}
	q.found = append(q.found, input.Problems{"": unfetched(p.secrets.Unfetched())})
	q.lacks, q.root = p.secrets.Lacks(), p.input.Root()
	return q
}

// queries returns a query for each planned Spec that can have problems, with the Spec as key. It also returns a query
// for each VirtualService and EnvoyFilter of the snapshot, with the record as key. Specs that scopes share have one
// query. queries appends the problems of workloads and Secrets to q.found.
func (q *problemSources) queries() map[any]query {
	queries := map[any]query{}
	if q.snapshot == nil {
		return queries
	}
	add := func(spec any, blame model.Key) {
		if p, ok := spec.(front.Patched); ok && !p.Patched() { // only a patched Spec of this kind can have problems
			return // most Specs are like this, and need no entry in the cache
		}
		if s, ok := spec.(incomplete); ok {
			queries[spec] = query{blame, s.Problems}
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
	q.found = append(q.found, input.Problems{"": unrunnable(q.workloads)},
		input.Problems{"": secret.LackProblems(q.lacks, q.snapshot, q.root)})
	for r := range q.snapshot.All(model.KindVirtualService) {
		queries[r] = query{r.Meta().Key, func() []error { return vhost.Problems(r.(*model.VirtualService)) }}
	}
	for r := range q.snapshot.All(model.KindEnvoyFilter) {
		queries[r] = query{r.Meta().Key, func() []error { return patchProblems(r.(*model.EnvoyFilter)) }}
	}
	return queries
}

// reports caches the problems of each Spec and record, so that each Spec and record is inspected once. It is safe for
// concurrent use.
type reports struct {
	mu    sync.Mutex
	known map[any][]finding
}

// finding is a problem. If a patch is left out of a resource, the finding also has the name of the resource.
type finding struct {
	Problem
	resource string
}

// answer returns all problems, each once, sorted by object. It inspects the Specs and records that are not cached yet,
// and drops the cached problems of Specs and records that are not in q. It checks ctx before each inspection, and
// returns the error of ctx.
func (r *reports) answer(ctx context.Context, q problemSources) ([]Problem, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	queries := q.queries()
	now := make(map[any][]finding, len(queries))
	sets, left := q.found, omissions{}
	for key, query := range queries {
		found, ok := r.known[key]
		if !ok {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for _, err := range query.find() {
				one := finding{Problem: model.ProblemOf(err, query.blame)}
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
	r.known = now
	return input.Sorted(append(sets, input.Problems{"": left.problems()})...), nil
}

// omissions maps the problem of each left-out patch to the resources that lack the patch. A patch may be left out of
// thousands of virtual hosts for one reason, so only the first name is stored.
type omissions map[Problem]struct {
	first  string // the name of the first resource in alphabetical order
	others bool   // further resources lack the patch
}

// add adds a finding about a resource.
func (l omissions) add(one finding) {
	of, known := l[one.Problem]
	switch {
	case !known:
		of.first = one.resource
	case of.first != one.resource:
		of.first, of.others = min(of.first, one.resource), true
	}
	l[one.Problem] = of
}

// problems lists the problems, each once. Each message names the first resource that lacks the patch.
func (l omissions) problems() (all []Problem) {
	for one, of := range l {
		name := of.first
		if of.others {
			name += " and others"
		}
		if one.Whole != "" {
			one.Whole = "left out of " + name + ": " + one.Whole
		}
		one.Message = "left out of " + name + ": " + one.Message
		all = append(all, one)
	}
	return all
}

// patchProblems returns one error for each patch of an EnvoyFilter that cannot be applied.
func patchProblems(f *model.EnvoyFilter) (all []error) {
	for i := range f.Spec.GetConfigPatches() {
		if err := patch.Problem(model.Patch{Filter: f, Index: i}); err != nil {
			all = append(all, err)
		}
	}
	return all
}
