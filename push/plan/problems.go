package plan

import (
	"context"
	"errors"
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

// inspect inspects all Specs that can have problems, and each VirtualService and EnvoyFilter of the snapshot. It
// appends the problems of workloads and Secrets to q.found.
func (q *problemSources) inspect(i *inspection) {
	if q.snapshot == nil {
		return
	}
	host.Specs(q.hosts, func(of host.Clusters, each func(func(spec pool.ResourceSpec, by model.Key))) {
		i.part(of, func() { each(func(spec pool.ResourceSpec, by model.Key) { i.spec(spec, by) }) })
	})
	alone := func(spec any) { i.part(spec, func() { i.spec(spec, q.mesh) }) }
	for _, frozen := range q.fronts {
		frozen(alone)
	}
	for _, spec := range q.specs {
		alone(spec)
	}
	for _, wl := range q.workloads {
		i.part(wl.Workload, func() { wl.Specs(func(spec pool.ResourceSpec) { i.spec(spec, q.mesh) }) })
		q.found = append(q.found, input.Problems{"": wl.Problems()})
	}
	q.found = append(q.found, input.Problems{"": unrunnable(q.workloads)},
		input.Problems{"": secret.LackProblems(q.lacks, q.snapshot, q.root)})
	for r := range q.snapshot.All(model.KindVirtualService) {
		i.part(r, func() { i.add(vhost.Problems(r.(*model.VirtualService)), r.Meta().Key) })
	}
	for r := range q.snapshot.All(model.KindEnvoyFilter) {
		i.part(r, func() { i.add(patchProblems(r.(*model.EnvoyFilter)), r.Meta().Key) })
	}
}

// reports caches the problems of each part, so that each part is inspected once. A part is a record, or an immutable
// group of Specs: the clusters of a host, a workload, or a single Spec. It is safe for concurrent use.
type reports struct {
	mu    sync.Mutex
	known map[any][]finding // by part
}

// finding is a problem. If a patch is left out of a resource, the finding also has the name of the resource.
type finding struct {
	Problem
	resource string
}

// inspection is one inspection of all parts.
type inspection struct {
	ctx        context.Context
	known, now map[any][]finding // the cache before and after the inspection
	specs      map[any][]finding // the Specs inspected so far, because several parts may have equal Specs
	found      []finding         // of the part that is being inspected
	err        error             // the error of ctx, once it has ended
}

// part calls find, which inspects a part, unless the problems of the part are known. It does nothing once the context
// has ended.
func (i *inspection) part(id any, find func()) {
	found, known := i.known[id]
	if !known && i.err == nil {
		i.err = i.ctx.Err()
	}
	if i.err != nil {
		return
	}
	if !known {
		i.found = nil
		find()
		found = i.found
	}
	i.now[id] = found
}

// spec inspects a Spec of the part that is being inspected. The object blame has the problems that name no object.
func (i *inspection) spec(spec any, blame model.Key) {
	if p, ok := spec.(front.Patched); ok && !p.Patched() { // only a patched Spec of this kind can have problems
		return
	}
	s, ok := spec.(incomplete)
	if !ok {
		return
	}
	found, known := i.specs[spec]
	if !known {
		found = findings(s.Problems(), blame)
		i.specs[spec] = found
	}
	i.found = append(i.found, found...)
}

// add adds problems to the part that is being inspected.
func (i *inspection) add(problems []error, blame model.Key) {
	i.found = append(i.found, findings(problems, blame)...)
}

// findings returns the errors of a Spec or record as findings. The object blame has the errors that name no object.
func findings(problems []error, blame model.Key) (all []finding) {
	for _, err := range problems {
		one := finding{Problem: model.ProblemOf(err, blame)}
		if of := (patch.Left{}); errors.As(err, &of) {
			one.resource = of.Resource
		}
		all = append(all, one)
	}
	return all
}

// answer returns all problems, each once, sorted by object. It inspects the parts that are not cached yet, and drops
// the cached problems of parts that are not in q. It checks ctx before each inspection of a part, and returns the error
// of ctx.
func (r *reports) answer(ctx context.Context, q problemSources) ([]Problem, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := inspection{ctx: ctx, known: r.known, now: make(map[any][]finding, len(r.known)), specs: map[any][]finding{}}
	if q.inspect(&i); i.err != nil {
		return nil, i.err
	}
	var others []Problem
	left := omissions{}
	for _, found := range i.now {
		for _, one := range found {
			if one.resource != "" {
				left.add(one)
			} else {
				others = append(others, one.Problem)
			}
		}
	}
	r.known = i.now
	return input.Sorted(append(q.found, input.Problems{"": others}, input.Problems{"": left.problems()})...), nil
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
