package patch

import (
	"fmt"

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

func checkAnys(m protoreflect.Message) error {
	var err error
	each := func(v protoreflect.Value) bool {
		err = checkAny(v.Message())
		return err == nil
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { return each(v) })
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				each(v.List().Get(i))
			}
		default:
			each(v)
		}
		return err == nil
	})
	return err
}

func checkAny(m protoreflect.Message) error {
	holder, ok := m.Interface().(*anypb.Any)
	if !ok {
		return checkAnys(m)
	}
	inner, err := holder.UnmarshalNew()
	if err != nil {
		return nil // of a type that is not known here
	}
	if err := Check(inner); err != nil {
		return fmt.Errorf("%s: %w", holder.MessageName(), err)
	}
	return nil
}
