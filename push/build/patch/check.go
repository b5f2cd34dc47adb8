package patch

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Check validates a message, including the messages in its Anys, against the constraints of Envoy's API (ValidateAll).
// Check skips Anys that do not decode or whose type this program does not link, such as Istio's own extensions. The
// error names the message and the field. Check does not change m.
func Check(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return err
		}
	}
	return checkAnys(m.ProtoReflect())
}

// checkAnys validates the messages in the Anys below a message. It visits only fields that may contain an Any. Most
// fields, such as durations and addresses, cannot contain one.
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

// checkAny validates the message in an Any.
func checkAny(holder *anypb.Any) error {
	inner, err := holder.UnmarshalNew()
	if err != nil {
		return nil // the type is not linked, or the bytes do not decode
	}
	if err := Check(inner); err != nil {
		return fmt.Errorf("%s: %w", holder.MessageName(), err)
	}
	return nil
}

// fieldsWithAnys caches the result of anyFields for each message type. Types are few and constant, so the cache evicts
// nothing.
var fieldsWithAnys sync.Map // protoreflect.MessageDescriptor -> []protoreflect.FieldDescriptor

// anyFields returns the fields of a message type in which, or below which, an Any is possible.
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

// holdsAny reports whether an Any is possible in a field or below the field. The parameter seen contains the types that
// were visited already, so that the search ends for recursive types.
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

// anyName is the full name of the message type Any.
var anyName = (*anypb.Any)(nil).ProtoReflect().Descriptor().FullName()
