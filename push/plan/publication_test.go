package plan

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A view counts once, in any order of its proxies: after a panic the order is random.
func TestViewsOfAPublication(t *testing.T) {
	views := map[string]*planned{"a": {}, "b": {}, "c": {}}
	var p Publication
	for _, name := range []string{"a", "a", "b", "c", "a", "b", "c"} {
		h := &Handle{Node: &view.Node{Namespace: map[bool]string{true: "shop", false: "pay"}[name < "c"]}}
		h.planned.Store(views[name])
		p.Moved = append(p.Moved, Moved{Handle: h, Path: Slow})
	}
	if got := p.Views(); !maps.Equal(got, map[string]int{"shop": 2, "pay": 1}) {
		t.Errorf("views %v, want two of shop and one of pay", got)
	}
}

// Each namespace has the revisions of the batches that wrote its edits, although edits were merged before they were
// planned. A namespace with an edit of unknown revisions has no revisions.
func TestSpansOfAPublication(t *testing.T) {
	in := func(c mirror.Change) mirror.Change {
		for i := range c.Edits {
			c.Edits[i].In = &model.Span{First: c.New.Revision(), Last: c.New.Revision(), Since: time.Unix(c.New.Revision(), 0)}
		}
		return c
	}
	vs := func(of string, timeout int) []model.Record {
		return []model.Record{rec(t, model.KindVirtualService, of, fmt.Sprintf("{hosts: [x], http: [{timeout: %ds}]}", timeout))}
	}
	one := in(mirror.Empty().Apply(3, vs("pay/a", 1), nil))
	two := in(one.New.Apply(5, vs("shop/b", 1), nil))
	three := in(two.New.Apply(7, vs("shop/b", 2), nil))
	four := in(three.New.Apply(8, vs("pay/a", 2), nil))
	five := four.New.Apply(9, vs("odd/c", 1), nil)
	six := in(five.New.Apply(10, vs("odd/d", 1), nil))
	want := map[string]model.Span{"shop": {First: 5, Last: 7, Since: time.Unix(5, 0)}, "pay": {First: 3, Last: 8, Since: time.Unix(3, 0)}}
	var waits Pending
	waits.Add(one.Merge(two).Merge(three).Merge(four).Merge(five).Merge(six).Edits)
	if got := (Publication{Edits: waits.Take()}).Spans(); !maps.Equal(got, want) {
		t.Errorf("merged before they were read: %v, want %v", got, want)
	}
	for _, c := range []mirror.Change{one, two, three, four, five, six} {
		waits.Add(c.Edits)
	}
	if got := (Publication{Edits: waits.Take()}).Spans(); !maps.Equal(got, want) {
		t.Errorf("merged while they waited: %v, want %v", got, want)
	}
	r := resolve.New(nil)
	r.Step(mirror.Diff(mirror.Empty(), one.New))
	if got := (Publication{Edits: r.Step(two).Edits}).Spans(); got["shop"] != *two.Edits[0].In {
		t.Errorf("resolved: %v", got)
	}
}
