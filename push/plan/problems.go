package plan

import (
	"fmt"
	"strings"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/model"
)

// String is "Kind namespace/name: field: message".
func (p Problem) String() string {
	if p.Field == "" {
		return fmt.Sprintf("%v: %s", p.Key, p.Message)
	}
	return fmt.Sprintf("%v: %s: %s", p.Key, p.Field, p.Message)
}

// problemOf reads what a builder says: "Kind namespace/name: field: message". Where it names no object or no field, blame
// and its spec are at fault.
func problemOf(err error, blame model.Key) Problem {
	p := Problem{blame, "spec", err.Error()}
	if object, rest, ok := strings.Cut(p.Message, ": "); ok {
		if key, ok := parseKey(object); ok {
			p.Key, p.Message = key, rest
		}
	}
	if field, rest, ok := strings.Cut(p.Message, ": "); ok && strings.HasPrefix(field, "spec.") && !strings.Contains(field, " ") {
		p.Field, p.Message = field, rest
	}
	return p
}

// parseKey is the inverse of Key.String.
func parseKey(s string) (model.Key, bool) {
	kind, path, ok := strings.Cut(s, " ")
	if !ok {
		return model.Key{}, false
	}
	key, err := model.ParsePath(kind + "/" + path)
	return key, err == nil && !strings.Contains(path, " ")
}

// complainer is a Spec that knows what it is drawn without.
type complainer interface{ Problems() []error }

// complaints are what the builders leave out, by Spec or by record. They are drawn for only when somebody asks, and
// remembered until the next time somebody asks.
type complaints map[any][]Problem

// of finds what is wrong with key, or remembers it from the last time.
func (c complaints) of(last complaints, key any, blame model.Key, find func() []error) {
	if _, ok := c[key]; ok {
		return
	}
	found, ok := last[key]
	if !ok {
		for _, err := range find() {
			found = append(found, problemOf(err, blame))
		}
	}
	c[key] = found
}

// complain asks the builders about everything that is planned, and about all rules and patches, planned or not.
func (p *Planner) complain() problems {
	now := complaints{}
	ask := func(spec pool.ResourceSpec, blame model.Key) {
		if s, ok := spec.(complainer); ok {
			now.of(p.complaints, spec, blame, s.Problems)
		}
	}
	for _, s := range p.scopes {
		for _, h := range s.hosts {
			for _, c := range h.clusters {
				ask(c.spec, h.svc.Key)
			}
		}
		for _, spec := range s.specs {
			ask(spec, p.world.mesh.Key)
		}
	}
	for _, wl := range p.workloads {
		for _, spec := range wl.specs {
			ask(spec, p.world.mesh.Key)
		}
	}
	for r := range p.world.All(model.KindVirtualService) {
		now.of(p.complaints, r, r.Meta().Key, func() []error { return vhost.Problems(r.(*model.VirtualService)) })
	}
	for r := range p.world.All(model.KindEnvoyFilter) {
		now.of(p.complaints, r, r.Meta().Key, func() []error { return patchProblems(r.(*model.EnvoyFilter)) })
	}
	p.complaints = now
	all := problems{}
	for _, found := range now {
		all[""] = append(all[""], found...)
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
