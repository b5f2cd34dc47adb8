package view

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// For proxies of one workload the snapshot is searched once. After an edit the index computes the new view, and
// EnvoyFilter conditions on a single proxy are evaluated for each proxy.
func TestWorkloadIsChosenForOnce(t *testing.T) {
	service := rec(t, model.KindService, "shop/web", `{hosts: [web.shop.svc.cluster.local], selector: {app: web}}`)
	policy := rec(t, model.KindAuthorizationPolicy, "shop/p", `{}`)
	s := snapshot(service, policy)
	x := NewIndex(s)
	names := func(v View) (all []string) {
		for _, k := range slices.Concat(v.Workload.Services.All(), v.Workload.Policies.All()) {
			all = append(all, k.Name)
		}
		return all
	}
	check := func(s *mirror.Snapshot, n Node, want ...string) {
		t.Helper()
		if v := x.View(s, n); !slices.Equal(names(v), want) || v != Of(s, n) {
			t.Errorf("%v, want %v", names(v), want)
		}
	}
	check(s, web(), "web", "p")
	again := web()
	if n := testing.AllocsPerRun(20, func() { x.View(s, again) }); n > 0 || len(x.chosen) != 1 {
		t.Errorf("one more of the same costs %g allocations; %d choices", n, len(x.chosen))
	}
	check(s, web("tier=1"), "web", "p")
	check(s, web("app=db"), "p")
	elsewhere := web()
	elsewhere.Namespace = "else"
	check(s, elsewhere)

	other := rec(t, model.KindService, "shop/other", `{hosts: [other.shop.svc.cluster.local], selector: {app: web}}`)
	next := s.Apply(2, []model.Record{other}, []model.Key{policy.Meta().Key}).New
	check(next, web(), "other", "web")
	check(s, web(), "web", "p") // back to an earlier snapshot, as a plan that is only tried does

	filter := rec(t, model.KindEnvoyFilter, "shop/f", `{configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_INBOUND, proxy: {metadata: {NODE_NAME: a}}}}]}`)
	picky := next.Apply(3, []model.Record{filter}, nil).New
	for node, want := range map[string]int{"a": 1, "b": 0} {
		n := web()
		n.Metadata = map[string]string{"NODE_NAME": node}
		if v := x.View(picky, n); len(v.Workload.Filters.All()) != want || v != Of(picky, n) {
			t.Errorf("%d patches on node %s", len(v.Workload.Filters.All()), node)
		}
	}
}

// When a source label starts to be named by a rule, the views of an unchanged snapshot include the label.
func TestChoicesFollowSourceLabels(t *testing.T) {
	s := snapshot()
	x := NewIndex(s)
	if v := x.View(s, web()); len(v.Inputs.Labels.All()) != 0 {
		t.Fatalf("%v", v.Inputs.Labels.All())
	}
	vs := rec(t, model.KindVirtualService, "shop/v", `{hosts: [x], http: [{match: [{sourceLabels: {app: web}}]}]}`)
	x.Apply(mirror.Edit{New: vs})
	if v := x.View(s, web()); !slices.Equal(v.Inputs.Labels.All(), []string{"app=web"}) {
		t.Errorf("%v", v.Inputs.Labels.All())
	}
}

// A fork and its original do not see each other's edits.
func TestForksOfAnIndex(t *testing.T) {
	s := snapshot()
	vs := func(label string) mirror.Edit {
		return mirror.Edit{New: rec(t, model.KindVirtualService, "shop/"+label, `{hosts: [x], http: [{match: [{sourceLabels: {`+label+`: x}}]}]}`)}
	}
	x := NewIndex(s)
	x.Apply(vs("a"))
	fork := x.Fork()
	again := fork.Fork()
	x.Apply(vs("b"))
	fork.Apply(vs("c"))
	for _, one := range []struct {
		of   *Index
		want []string
	}{{x, []string{"a=x", "b=x"}}, {fork, []string{"a=x", "c=x"}}, {again, []string{"a=x"}}} {
		if v := one.of.View(s, web("a=x", "b=x", "c=x")); !slices.Equal(v.Inputs.Labels.All(), one.want) {
			t.Errorf("%v, want %v", v.Inputs.Labels.All(), one.want)
		}
	}
}

// The index remembers at most a fixed number of selections, and does use all of them. Different sets of labels have
// different keys.
func TestChoicesAreBounded(t *testing.T) {
	s := snapshot()
	x := NewIndex(s)
	for i := range 2*maxChosen + 10 {
		if x.View(s, web(fmt.Sprint("pod=", i))); len(x.chosen) > maxChosen {
			t.Fatalf("%d choices", len(x.chosen))
		}
		if i == maxChosen-1 {
			if x.View(s, web("pod=0")); len(x.chosen) != maxChosen {
				t.Errorf("%d choices of %d", len(x.chosen), maxChosen)
			}
		}
	}
	seen := map[string]bool{}
	for _, labels := range []map[string]string{nil, {"": ""}, {"a": "b"}, {"a": "", "b": ""}, {"ab": ""}, {"": "ab"}, {"a": "bc"}, {"ab": "c"}, {"a\x01": "b"}, {"a": "\x01b"}, {"a\x00b": ""}} {
		seen[string(appendLabels(nil, labels))] = true
	}
	if len(seen) != 11 {
		t.Errorf("%d keys of 11 sets of labels", len(seen))
	}
}

// An Index that has no user any more does not keep its snapshot in memory.
func TestIndexHoldsNoSnapshot(t *testing.T) {
	x, gone := func() (*Index, weak.Pointer[mirror.Snapshot]) {
		s := snapshot()
		x := NewIndex(s)
		x.View(s, web())
		return x, weak.Make(s)
	}()
	for end := time.Now().Add(time.Minute); gone.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the snapshot is held")
		}
	}
	runtime.KeepAlive(x)
}
