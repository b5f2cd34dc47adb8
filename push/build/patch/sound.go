package patch

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navarch.io/navarch/store/model"
)

// mergedInto is the message with a patch merged into it, or as it was where Envoy would refuse that: then the patch is
// left out. Most values are sound, so that what they are merged into stays valid: they are merged in place. Any other is
// tried on a copy. The message must be no one else's.
func mergedInto[M proto.Message](l *leaving, p model.Patch, m M) M {
	if valueOf(p, m.ProtoReflect().Type()).soundIn(m.ProtoReflect()) {
		l.out(p, Merge(p, m))
		return m
	}
	with := proto.CloneOf(m)
	if l.out(p, Merge(p, with)) || l.out(p, Check(with)) {
		return m
	}
	return with
}

// soundness says where a value may be merged, of itself, without making an invalid message of a valid one, but for the
// length of lists.
type soundness struct {
	never bool
	// parts are the messages in the value that lack what Envoy requires of them: each has to be there already. By the
	// fields that lead to them.
	parts [][]protoreflect.FieldDescriptor
}

func (d decoded) soundIn(m protoreflect.Message) bool {
	if d.err != nil {
		return true // Merge says so, and leaves the message alone
	}
	s := d.sound()
	if s.never {
		return false
	}
	for _, part := range s.parts {
		at := m
		for _, fd := range part {
			if !at.Has(fd) {
				return false
			}
			at = at.Get(fd).Message()
		}
	}
	return true
}

// soundnessOf looks at what of a value violates Envoy's API: nothing but what is missing from it may.
func soundnessOf(value proto.Message) soundness {
	if checkAnys(value.ProtoReflect()) != nil {
		return soundness{never: true}
	}
	var s soundness
	if v, is := value.(interface{ ValidateAll() error }); is {
		s.never = !s.lacks(value.ProtoReflect(), nil, v.ValidateAll())
	}
	return s
}

// violation is one error of generated validators.
type violation interface {
	Field() string // as Go calls it; of a list or a map with the index
	Cause() error  // of a message in the field
}

// lacks says whether a message violates Envoy's API by nothing but fields that it does not state, and notes the parts
// for which that is so.
func (s *soundness) lacks(m protoreflect.Message, at []protoreflect.FieldDescriptor, err error) bool {
	all, is := err.(interface{ AllErrors() []error })
	if err != nil && !is {
		return false
	}
	if err == nil {
		return true
	}
	missing := false
	for _, one := range all.AllErrors() {
		of, is := one.(violation)
		if !is {
			return false
		}
		fd, stated := statedAs(m, of.Field())
		switch {
		case !stated:
			missing = true
		case fd == nil || fd.IsList() || fd.IsMap() || fd.Message() == nil || of.Cause() == nil:
			return false
		case !s.lacks(m.Get(fd).Message(), append(at[:len(at):len(at)], fd), of.Cause()):
			return false
		}
	}
	if missing && len(at) > 0 {
		s.parts = append(s.parts, at)
	}
	return true
}

// statedAs finds the field that Go calls so among those that a message states; nil: it is a oneof, of which one is
// stated.
func statedAs(m protoreflect.Message, name string) (found protoreflect.FieldDescriptor, stated bool) {
	name, _, _ = strings.Cut(name, "[")
	same := func(n protoreflect.Name) bool {
		return strings.EqualFold(strings.ReplaceAll(string(n), "_", ""), strings.ReplaceAll(name, "_", ""))
	}
	m.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		switch {
		case same(fd.Name()):
			found, stated = fd, true
		case fd.ContainingOneof() != nil && same(fd.ContainingOneof().Name()):
			stated = true
		}
		return found == nil
	})
	return found, stated
}
