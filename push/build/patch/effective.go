package patch

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Trace records the patches that change a resource while a builder applies patches. A patch changes the resource if the
// resource differs before and after the patch, even if a later patch reverts the change. A patch that is left out
// changes nothing. The nil Trace records nothing. Effective creates Traces. A Trace is not safe for concurrent use.
type Trace struct {
	changed map[model.Patch]bool
	tried   []model.Patch // patches with an effect in the present attempt; an attempt applies all patches once
}

// Effective returns the elements of patches that changed a resource, in the same order. If no patch changed the
// resource, the result is nil. The function build must build the resource once with the patches, and pass the Trace to
// the functions that apply patches. Effective does not call build for an empty list.
func Effective(patches intern.List[model.Patch], build func(*Trace)) (effective []model.Patch) {
	if patches.Len() == 0 {
		return nil
	}
	t := &Trace{}
	build(t)
	t.keep()
	return filterPatches(patches.All(), func(p model.Patch) bool { return t.changed[p] })
}

// mark records that a patch changes the resource in the present attempt.
func (t *Trace) mark(p model.Patch) {
	if t != nil {
		t.tried = append(t.tried, p)
	}
}

// restart discards the records of the present attempt.
func (t *Trace) restart() {
	if t != nil {
		t.tried = t.tried[:0]
	}
}

// keep ends the present attempt and preserves its records.
func (t *Trace) keep() {
	if t == nil || len(t.tried) == 0 {
		return
	}
	if t.changed == nil {
		t.changed = map[model.Patch]bool{}
	}
	for _, p := range t.tried {
		t.changed[p] = true
	}
	t.restart()
}

// traced returns the result of the function edit, which applies a patch to m. It marks the patch in t if the result
// differs from m. Only the fields that the value of the patch states are compared, because a merge changes no other
// fields.
func traced[M proto.Message](t *Trace, p model.Patch, m M, edit func(M) M) M {
	if t == nil {
		return edit(m)
	}
	stated := valueOf(p, m.ProtoReflect().Type())
	if stated.err != nil {
		return edit(m) // the patch is left out
	}
	before := proto.Clone(excerpt(m, stated.fields()))
	after := edit(m)
	if !proto.Equal(before, excerpt(after, stated.fields())) {
		t.mark(p)
	}
	return after
}

// excerpt returns a message with some fields of m. It shares their values with m.
func excerpt(m proto.Message, fields []field) proto.Message {
	from := m.ProtoReflect()
	some := from.New()
	for _, f := range fields {
		if from.Has(f.FieldDescriptor) {
			some.Set(f.FieldDescriptor, from.Get(f.FieldDescriptor))
		}
	}
	return some.Interface()
}

// tracedList returns the results of the function edit, which applies a patch to a list of filters. It marks the patch
// in t if the list changes.
func tracedList[F named](t *Trace, p model.Patch, list []F, edit func() ([]F, error)) ([]F, error) {
	if t == nil {
		return edit()
	}
	before := slices.Clone(list)
	after, err := edit()
	same := len(before) == len(after)
	for i := 0; same && i < len(after); i++ {
		same = proto.Equal(before[i], after[i]) // fast for equal pointers
	}
	if !same {
		t.mark(p)
	}
	return after, err
}
