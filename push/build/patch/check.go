package patch

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Check says what of a message violates the constraints of Envoy's API, inside its Anys too. Anys of types that this
// build does not know (Istio's own extensions) are passed over. nil: nothing. An error names message and field.
func Check(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return err
		}
	}
	return checkAnys(m.ProtoReflect())
}

// checkAnys checks what stands in the Anys below a message. Only the fields that can hold one are looked at: most of a cluster (addresses,
// durations, metadata) cannot.
func checkAnys(m protoreflect.Message) error {
	if holder, ok := m.Interface().(*anypb.Any); ok {
		return checkAny(holder)
	}
	var err error
	each := func(v protoreflect.Value) bool {
		err = checkAnys(v.Message())
		return err == nil
	}
	for _, fd := range anyFields(m.Descriptor()) {
		switch {
		case !m.Has(fd):
		case fd.IsMap():
			m.Get(fd).Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { return each(v) })
		case fd.IsList():
			for l, i := m.Get(fd).List(), 0; i < l.Len() && err == nil; i++ {
				each(l.Get(i))
			}
		default:
			each(m.Get(fd))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkAny(holder *anypb.Any) error {
	inner, err := holder.UnmarshalNew()
	if err != nil {
		return nil // of a type that is not known here
	}
	if err := Check(inner); err != nil {
		return fmt.Errorf("%s: %w", holder.MessageName(), err)
	}
	return nil
}

// fieldsWithAnys are, for each message type that was asked for, the fields below which an Any can stand. Types are few and never change.
var fieldsWithAnys sync.Map // protoreflect.MessageDescriptor -> []protoreflect.FieldDescriptor

func anyFields(of protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if known, ok := fieldsWithAnys.Load(of); ok {
		return known.([]protoreflect.FieldDescriptor)
	}
	var out []protoreflect.FieldDescriptor
	for i := range of.Fields().Len() {
		if fd := of.Fields().Get(i); holdsAny(fd, map[protoreflect.FullName]bool{}) {
			out = append(out, fd)
		}
	}
	fieldsWithAnys.Store(of, out)
	return out
}

// holdsAny says whether an Any can stand in a field or below it. Types that were seen on the way are not looked at again: they may hold
// themselves.
func holdsAny(fd protoreflect.FieldDescriptor, seen map[protoreflect.FullName]bool) bool {
	if fd.IsMap() {
		fd = fd.MapValue()
	}
	of := fd.Message()
	if of == nil || seen[of.FullName()] {
		return false
	}
	seen[of.FullName()] = true
	if of.FullName() == anyName {
		return true
	}
	for i := range of.Fields().Len() {
		if holdsAny(of.Fields().Get(i), seen) {
			return true
		}
	}
	return false
}

var anyName = (*anypb.Any)(nil).ProtoReflect().Descriptor().FullName()
