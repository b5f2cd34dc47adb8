package scene

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"navarch.io/navarch/store/normal/fields"
)

// enumValue is a value of a field.
type enumValue struct {
	field protoreflect.FullName
	value protoreflect.Name
}

// valued reports the values of an enum field in an object's JSON, one or a list.
func (by *striker) valued(fd protoreflect.FieldDescriptor, stated any) {
	if by.value == nil || fd.Enum() == nil {
		return
	}
	all, is := stated.([]any)
	if !is {
		all = []any{stated}
	}
	for _, one := range all {
		name, _ := one.(string)
		if v := fd.Enum().Values().ByName(protoreflect.Name(name)); v != nil {
			by.value(v, fd)
		}
	}
}

// everyValue requires, for each value of an enum field that is acted on, that the objects of a scene have it, or that
// the table of fields has a line for it. The value 0 is exempt, because an unset field has it. Fields that no scene
// shows are exempt too, if their line names the code that acts on them.
func everyValue(t *testing.T, shown map[enumValue]bool) {
	seen := map[protoreflect.FullName]bool{}
	var visit func(md protoreflect.MessageDescriptor)
	visit = func(md protoreflect.MessageDescriptor) {
		if seen[md.FullName()] {
			return
		}
		seen[md.FullName()] = true
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if below := fields.Below(fd); below != nil {
				visit(below)
			}
			if fd.Enum() == nil {
				continue
			}
			for j := range fd.Enum().Values().Len() {
				v := fd.Enum().Values().Get(j)
				row := fields.Of(fd, string(v.Name()), nil)
				if v.Number() != 0 && row != nil && row.Mark == fields.Acted && row.Value == "" && row.Test == "" && !shown[enumValue{fd.FullName(), v.Name()}] {
					t.Errorf("%s=%s is marked as acted on, and no scene has it: give one the value, or the value a line of its own", row, v.Name())
				}
			}
		}
	}
	for _, root := range fields.Roots() {
		visit(root.Message)
	}
}
