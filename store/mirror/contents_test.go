package mirror

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// storedState is the content of the store, with the state that a replica must have.
type storedState struct {
	t      *testing.T
	r      *rand.Rand
	values map[string]kv.Value            // by path
	good   map[string]map[string]kv.Value // by kind: the values when a head last described them correctly
}

func (w *storedState) list() []kv.Value {
	return slices.Collect(func(yield func(kv.Value) bool) {
		for _, path := range slices.Sorted(maps.Keys(w.values)) {
			if !yield(w.values[path]) {
				return
			}
		}
	})
}

// edit changes some records, and returns the updates of the watch.
func (w *storedState) edit() (all []kv.Value) {
	for range w.r.IntN(6) {
		name := fmt.Sprintf("s%d", w.r.IntN(8))
		v := value(w.t, name, uint32(1+w.r.IntN(3)))
		if w.r.IntN(2) == 0 {
			v.Path = "Novel///shop/" + name
		}
		if w.r.IntN(3) == 0 {
			v.Raw = nil
		}
		if w.values[v.Path] = v; v.Raw == nil {
			delete(w.values, v.Path)
		}
		all = append(all, v)
	}
	return all
}

// said returns the contents of a head that is wrong about some kinds, and the last good state of these kinds.
func (w *storedState) said() kv.Contents {
	said := kv.ContentsOf(w.list())
	for _, kind := range []string{"Service", "Novel"} {
		if w.r.IntN(3) == 0 {
			said.Replace(kind+"/shop/gone", model.Hash{}, model.Hash{1})
			continue
		}
		w.good[kind] = map[string]kv.Value{}
		for path, v := range w.values {
			if strings.HasPrefix(path, kind+"/") {
				w.good[kind][path] = v
			}
		}
	}
	return said
}

// check compares a replica with the expected state.
func (w *storedState) check(f *fold) {
	w.t.Helper()
	if differ := f.stored.Differ(kv.ContentsOf(w.list())); len(differ) > 0 {
		w.t.Fatalf("what was read is not what is stored: %v", differ)
	}
	if !f.published {
		return
	}
	want := []string{}
	for _, v := range w.good["Service"] {
		want = append(want, fmt.Sprint(v.Path, v.Hash()))
	}
	have := []string{}
	for r := range f.base.All(model.KindService) {
		have = append(have, fmt.Sprint(r.Meta().Key.Path(), r.Meta().Hash))
	}
	slices.Sort(want)
	if slices.Sort(have); !slices.Equal(have, want) {
		w.t.Fatalf("services %v, want %v", have, want)
	}
	unknown := []string{}
	for _, u := range f.base.unknown {
		unknown = append(unknown, u.Path)
	}
	if want := slices.Sorted(maps.Keys(w.good["Novel"])); !slices.Equal(unknown, want) {
		w.t.Fatalf("unknown %v, want %v", unknown, want)
	}
}

// Over random changes, heads that are wrong about some kinds, and lists between them: the contents that a replica
// computes equal those from scratch, and each kind has exactly the values at the last correct head.
func TestHeldKindsOverRandomChanges(t *testing.T) {
	publications := 0
	for seed := range uint64(15) {
		w := &storedState{t: t, r: rand.New(rand.NewPCG(seed, 5)), values: map[string]kv.Value{}, good: map[string]map[string]kv.Value{}}
		f := newFold()
		state := &kv.State{At: kv.Position{Revision: 1}, Head: kv.Head{Revision: 1, Complete: true}, Complete: 1, Said: kv.NewContents(), Contents: kv.NewContents()}
		f.load(state)
		w.good["Service"], w.good["Novel"] = nil, nil
		for revision := int64(2); revision < 80; revision++ {
			u := kv.Update{Revision: revision, Values: w.edit()}
			switch w.r.IntN(5) {
			case 0, 1:
				u.Head = &kv.Head{Revision: revision, Complete: true, Contents: w.said()}
			case 2:
				u.Head = &kv.Head{Revision: revision}
			case 3:
				said := w.said()
				state := &kv.State{At: kv.Position{Revision: revision}, Head: kv.Head{Revision: revision, Complete: true, Contents: said}, Complete: revision,
					Said: said, Contents: kv.ContentsOf(w.list()), Values: w.list()}
				if _, ok := f.load(state); ok {
					publications++
				}
				w.check(f)
				continue
			}
			if _, ok := f.apply(u); ok {
				publications++
			}
			w.check(f)
		}
	}
	if publications < 300 {
		t.Errorf("%d publications", publications)
	}
}

// BenchmarkFold is one batch of an endpoint that changed, in a mesh of many.
func BenchmarkFold(b *testing.B) {
	var values []kv.Value
	for i := range 20000 {
		values = append(values, value(b, fmt.Sprintf("s%05d", i), 80))
	}
	f := newFold()
	f.load(&kv.State{Complete: 1, Head: kv.Head{Revision: 1, Complete: true}, Said: kv.ContentsOf(values), Contents: kv.ContentsOf(values), Values: values})
	two := []kv.Value{value(b, "s00007", 81), value(b, "s00007", 80)}
	said := []kv.Contents{kv.ContentsOf(values).Clone(), kv.ContentsOf(values)}
	said[0].Replace(two[0].Path, two[1].Hash(), two[0].Hash())
	b.ReportAllocs()
	for i := range b.N {
		f.apply(kv.Update{Revision: int64(i + 2), Head: &kv.Head{Revision: int64(i + 2), Complete: true, Contents: said[i%2]}, Values: two[i%2 : i%2+1]})
	}
	if len(f.held) > 0 || f.unchecked != "" {
		b.Fatal(f.held, f.unchecked)
	}
}
