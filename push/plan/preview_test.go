package plan_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// predict previews edits of random meshes. A preview of an edit predicts what the planner then plans: the same proxies
// are affected, and each gets the same resources, byte for byte. The preview runs beside the planner, which plans this
// edit meanwhile, and in the end equals a plan from scratch.
func predict(t *testing.T, meshes, edits int) {
	const runs = 4
	all := counts{kinds: map[model.Kind]int{}, affecting: map[model.Kind]int{}}
	t.Run("meshes", func(t *testing.T) {
		for run := range runs {
			t.Run(fmt.Sprint(run), func(t *testing.T) {
				t.Parallel()
				for seed := run; seed < meshes; seed += runs {
					predictMesh(t, seed, edits, &all)
				}
			})
		}
	})
	total, policies := 0, 0
	for kind, n := range all.kinds {
		total += n
		switch kind {
		case model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindRequestAuthentication:
			policies += n
		default:
		}
		if meshes*edits >= 2000 && (n < 20 || all.affecting[kind] == 0 && kind != model.KindSecretReader) {
			t.Errorf("%v: %d edits, of which %d affect a proxy", kind, n, all.affecting[kind])
		}
	}
	if 10*policies < 3*total {
		t.Errorf("%d of %d edits are of policies", policies, total)
	}
	t.Logf("edits that were previewed, and those of them that affect a proxy: %v %v", all.kinds, all.affecting)
}

// counts are the numbers of edits by kind, and of those that affect a proxy.
type counts struct {
	mu               sync.Mutex
	kinds, affecting map[model.Kind]int
}

// predictMesh previews edits of one random mesh.
func predictMesh(t *testing.T, seed, edits int, all *counts) {
	e := plan.NewEditRun(t, uint64(seed))
	for i := range edits {
		kind := plan.PreviewedKinds[(seed*edits+i)%len(plan.PreviewedKinds)]
		c := e.Next(kind)
		predicted := predictBeside(t, e, c)
		all.mu.Lock()
		if all.kinds[kind]++; len(predicted.Views) > 0 {
			all.affecting[kind]++
		}
		all.mu.Unlock()
		if e.Between(); t.Failed() {
			for _, edit := range c.Edits {
				t.Logf("%v: %v -> %v", edit.Key(), edit.Old, edit.New)
			}
			t.Fatalf("seed %d edit %d", seed, i)
		}
	}
	if diff := e.Differs(); diff != "" {
		t.Fatalf("seed %d: after previews the planner differs from a plan from scratch: %s", seed, diff)
	}
}

// predictBeside previews a change in another goroutine, while the planner plans it, and compares the two.
func predictBeside(t *testing.T, e *plan.EditRun, c mirror.Change) *preview.Plan {
	t.Helper()
	base, before := e.Base(), e.Sets()
	type answer struct {
		plan *preview.Plan
		err  error
	}
	done := make(chan answer)
	go func() {
		p, err := preview.Of(t.Context(), base(), c, nil)
		done <- answer{p, err}
	}()
	e.Apply(c)
	after := e.Sets()
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	compare(t, got.plan, before, after)
	return got.plan
}

// compare compares a prediction with the sets of proxies before and after the change.
func compare(t *testing.T, p *preview.Plan, before, after map[string]*manifest.Set) {
	t.Helper()
	predicted := map[string][]string{}
	for _, v := range p.Views {
		var pairs []string
		for _, pair := range slices.Concat(v.Changed, v.Agent) {
			pairs = append(pairs, line(pair.Type, pair.Name, pair.Old, pair.New))
		}
		slices.Sort(pairs)
		for _, id := range v.Proxies {
			if predicted[id] != nil {
				t.Errorf("%s is in two views", id)
			}
			predicted[id] = pairs
		}
	}
	for id, was := range before {
		want := deltas(was, after[id])
		if have := predicted[id]; !slices.Equal(have, want) {
			t.Errorf("%s: predicted\n  %s\nplanned\n  %s", id, strings.Join(have, "\n  "), strings.Join(want, "\n  "))
		}
		delete(predicted, id)
	}
	for id := range predicted {
		t.Errorf("%s is predicted to be affected, and is no proxy", id)
	}
}

// line describes a resource before and after a change, with the hashes of its bytes.
func line(of xds.Type, name string, old, now *xds.Resource) string {
	hash := func(r *xds.Resource) string {
		if r == nil {
			return "none"
		}
		return fmt.Sprintf("%x", sha256.Sum256(r.Body()))
	}
	return fmt.Sprintf("%v %s: %s -> %s", of, name, hash(old), hash(now))
}

// deltas lists what a proxy is sent after a change, without the code of manifests that compares layers. A resource that
// is pending after the change is neither sent nor removed.
func deltas(was, is *manifest.Set) (all []string) {
	both := func(of xds.Type, name string, old, now *xds.Resource) {
		if old == nil && now == nil || old != nil && now != nil && bytes.Equal(old.Body(), now.Body()) {
			return
		}
		all = append(all, line(of, name, old, now))
	}
	for t := range xds.NumTypes {
		names := map[string]bool{}
		for _, set := range []*manifest.Set{was, is} {
			for r := range set.Types[t].All() {
				names[r.Name] = true
			}
		}
		for name := range names {
			if is.Types[t].Pending(name) {
				continue
			}
			both(t, name, was.Types[t].Get(name), is.Types[t].Get(name))
		}
	}
	both(xds.Unknown, "name table", was.Names.Get(""), is.Names.Get(""))
	both(xds.Unknown, "bootstrap", was.Bootstrap, is.Bootstrap)
	slices.Sort(all)
	return all
}
