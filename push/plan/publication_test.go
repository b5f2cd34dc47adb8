package plan

import (
	"maps"
	"testing"

	"navarch.io/navarch/push/view"
)

// A view counts once, in any order of its proxies: after a panic the order is random.
func TestViewsOfAPublication(t *testing.T) {
	views := map[string]*planned{"a": {}, "b": {}, "c": {}}
	var p Publication
	for _, name := range []string{"a", "a", "b", "c", "a", "b", "c"} {
		h := &Handle{Node: view.Node{Namespace: map[bool]string{true: "shop", false: "pay"}[name < "c"]}}
		h.planned.Store(views[name])
		p.Moved = append(p.Moved, Moved{Handle: h, Path: Slow})
	}
	if got := p.Views(); !maps.Equal(got, map[string]int{"shop": 2, "pay": 1}) {
		t.Errorf("views %v, want two of shop and one of pay", got)
	}
}
