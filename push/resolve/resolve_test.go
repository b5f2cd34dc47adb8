package resolve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// randomRun resolves a random history step by step.
type randomRun struct {
	*mesh
	resolver *Resolver
	source   *mirror.Snapshot
	behind   mirror.Change // changes that the resolver gets as one
	last     mirror.Change
}

func newRandomRun(t testing.TB, seed uint64, table *[model.NumKinds][]dependency) *randomRun {
	d := &randomRun{mesh: &mesh{t: t, r: rand.New(rand.NewPCG(seed, 5)), records: map[model.Key]model.Record{}}, resolver: New(nil), source: mirror.Empty()}
	d.resolver.table = table
	d.behind = mirror.Change{Old: d.source, New: d.source}
	return d
}

// step makes some edits. In four of five cases it resolves all edits since the last resolution.
func (d *randomRun) step() (resolved bool) {
	var puts []model.Record
	var dels []model.Key
	for range 1 + d.r.IntN(3) {
		if put, del := d.edit(); put != nil {
			puts = append(puts, put)
		} else {
			dels = append(dels, del)
		}
	}
	c := d.source.Apply(d.source.Revision()+1, puts, dels)
	d.source = c.New
	d.behind = d.behind.Merge(c)
	if d.r.IntN(5) == 0 {
		return false
	}
	d.last = d.resolver.Step(d.behind)
	d.behind = mirror.Change{Old: d.source, New: d.source}
	return true
}

// fault describes the difference between the incremental result and the result from scratch; empty if they are equal.
func (d *randomRun) fault() string {
	whole, problems := Snapshot(d.source)
	if edits := mirror.Diff(whole, d.last.New).Edits; len(edits) > 0 {
		return fmt.Sprintf("from scratch, then step by step: %v", edits)
	}
	if found := d.resolver.Problems(); !slices.Equal(found, problems) {
		return fmt.Sprintf("problems from scratch %v, step by step %v", problems, found)
	}
	return d.wrong()
}

// wrong describes the contradiction between the last change and the snapshots before and after it; empty if there is
// none.
func (d *randomRun) wrong() string {
	c := d.last
	if d.resolver.drift > 0 && d.resolver.drift >= len(d.resolver.overlay) {
		return "structure is no longer shared with the source"
	}
	if c.New.Revision() != d.source.Revision() {
		return "another revision"
	}
	differ := map[model.Key]bool{}
	for _, e := range mirror.Diff(c.Old, c.New).Edits {
		differ[e.Key()] = true
	}
	for _, e := range c.Edits {
		key := e.Key()
		old, _ := c.Old.Get(key)
		now, _ := c.New.Get(key)
		if e.Old != old || e.New != now {
			return fmt.Sprintf("the edit of %v is not what the snapshots have", key)
		}
		if !differ[key] && key.Kind == model.KindVirtualService {
			return fmt.Sprintf("%v does not differ, and there is an edit of it", key)
		}
		delete(differ, key)
	}
	if len(differ) > 0 {
		return fmt.Sprintf("there is no edit of %v", differ)
	}
	if !slices.IsSortedFunc(c.Edits, func(a, b mirror.Edit) int { return a.Key().Compare(b.Key()) }) {
		return "edits are not ordered"
	}
	for _, kind := range model.Kinds() {
		for _, host := range []string{"o0.test", "o1.test", "x.test", "y.test"} {
			for r := range c.New.ByHost(kind, host) {
				if now, _ := c.New.Get(r.Meta().Key); now != r {
					return fmt.Sprintf("host %s finds %v as it was", host, r.Meta().Key)
				}
			}
		}
		found := 0
		for r := range c.New.All(kind) {
			found++
			for _, host := range []string{"o0.test", "o1.test", "x.test", "y.test"} {
				if byHost := slices.Contains(slices.Collect(c.New.ByHost(kind, host)), r); byHost != slices.Contains(hosts(r), host) {
					return fmt.Sprintf("%v is found by host %s: %v", r.Meta().Key, host, byHost)
				}
			}
		}
		if found != c.New.Len(kind) {
			return fmt.Sprintf("%d records of %v, counted %d", found, kind, c.New.Len(kind))
		}
	}
	return ""
}

func hosts(r model.Record) []string {
	switch t := r.(type) {
	case *model.Service:
		return t.Spec.Hosts
	case *model.Endpoints:
		return t.Spec.Hosts
	case *model.VirtualService:
		return t.Spec.Hosts
	}
	return nil
}

// In random histories the incremental result equals the result from scratch, and each change lists exactly the records
// that differ.
func TestStepMatchesSnapshot(t *testing.T) {
	for seed := range uint64(40) {
		d := newRandomRun(t, seed, &dependencies)
		for i := range 60 {
			if d.step() {
				if fault := d.fault(); fault != "" {
					t.Fatalf("seed %d step %d: %s", seed, i, fault)
				}
			}
		}
	}
}

// TestStruckDependencies checks the test above: it fails if any row of the table of dependencies is removed.
func TestStruckDependencies(t *testing.T) {
	for _, kind := range model.Kinds() {
		for row, struck := range dependencies[kind] {
			table := dependencies
			table[kind] = slices.Delete(slices.Clone(table[kind]), row, row+1)
			if !finds(t, &table) {
				t.Errorf("%v/%s: nothing fails without it", kind, struck.name)
			}
		}
		if (resolutions[kind] != nil) != slices.ContainsFunc(dependencies[kind], func(d dependency) bool { return d.name == "itself" }) {
			t.Errorf("%v: records of the kind are resolved, and an edit of one does not touch it, or the other way round", kind)
		}
	}
}

func finds(t *testing.T, table *[model.NumKinds][]dependency) bool {
	for seed := range uint64(40) {
		d := newRandomRun(t, seed, table)
		for range 60 {
			if d.step() && d.fault() != "" {
				return true
			}
		}
	}
	return false
}

// A route with a delegate without a name, which the normaliser admits with a warning, is left out; all other routes
// stay.
func TestDelegateWithoutAName(t *testing.T) {
	root := &networkingv1.VirtualService{Hosts: []string{"a"}, Http: []*networkingv1.HTTPRoute{{Delegate: &networkingv1.Delegate{Namespace: "shop"}}, {Name: "stays"}}}
	r, err := model.New(model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "a"}, 0, root)
	if err != nil {
		t.Fatal(err)
	}
	s, problems := Snapshot(mirror.Empty().Apply(1, []model.Record{r}, nil).New)
	got, _ := s.Get(r.Meta().Key)
	if routes := got.(*model.VirtualService).Spec.GetHttp(); len(routes) != 1 || routes[0].GetName() != "stays" || len(problems) > 0 {
		t.Errorf("%v, %v", routes, problems)
	}
}
