package manifest

import (
	"slices"
	"testing"

	"navarch.io/navarch/push/xds"
)

// A name that an upper layer hides is not there: not for Get, not for All, and no difference when the layer below edits it.
func TestHidden(t *testing.T) {
	one := &xds.Resource{Type: xds.Listener, Name: "one", Version: "1"}
	two := &xds.Resource{Type: xds.Listener, Name: "one", Version: "2"}
	other := &xds.Resource{Type: xds.Listener, Name: "other", Version: "1"}
	hides := Of(Hidden(xds.Listener, "one"))
	before := Stack{Scope: Of(one, other), Residue: hides}
	after := Stack{Scope: before[Scope].With([]*xds.Resource{two}, nil), Residue: hides}
	if before.Get("one") != nil || before.Get("other") != other {
		t.Error("Get: the hidden one is there, or the other is not")
	}
	if got := slices.Collect(before.All()); len(got) != 1 || got[0] != other {
		t.Errorf("All: %v", got)
	}
	if d := Diff(before, after); len(d) != 0 {
		t.Errorf("an edit below the hidden name is a difference: %v", d)
	}
	if d := Diff(Stack{Scope: before[Scope]}, before); len(d) != 1 || d[0].Old != one || d[0].New != nil {
		t.Errorf("hiding is %v, want a removal", d)
	}
}
