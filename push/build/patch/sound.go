package patch

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navarch.io/navarch/store/model"
)

// mergedInto merges a patch into m and returns the result. If the value does not decode, or if Envoy would refuse the
// result, mergedInto returns m unchanged and records the patch in l. If the value cannot make m invalid (mergesSafely),
// it is merged into m itself. Any other value is merged into a copy of m, which is validated. The caller must own m.
func mergedInto[M proto.Message](l *omissions, p model.Patch, m M) M {
	if valueOf(p, m.ProtoReflect().Type()).mergesSafely(m.ProtoReflect()) {
		l.omit(p, Merge(p, m))
		return m
	}
	with := proto.CloneOf(m)
	if l.omit(p, Merge(p, with)) || l.omit(p, Check(with)) {
		return m
	}
	return with
}

// soundness states which valid messages stay valid when a value is merged into them. It ignores constraints on the
// length of lists.
type soundness struct {
	never bool // the value may make any message invalid
	// parts are the paths of those messages in the value that lack required fields. The target of the merge stays valid
	// if it already has a message at each of these paths.
	parts [][]protoreflect.FieldDescriptor
}

// mergesSafely reports whether a valid message m stays valid when the value is merged into it.
func (d decoded) mergesSafely(m protoreflect.Message) bool {
	if d.err != nil {
		return true // Merge returns d.err and does not change the message
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

// soundnessOf returns the soundness of a value. If the value violates a constraint of Envoy's API, soundness.never is
// true. Missing required fields do not count as violations here.
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

// violation is one error of the generated validators.
type violation interface {
	Field() string // the field's name in Go, with the index for a list or a map
	Cause() error  // the error of the message in the field, or nil
}

// lacks reports whether all violations of a message m are missing fields. It adds the paths of messages with missing
// fields to s.parts. The parameter path is the path of m, and err is the result of m's validator.
func (s *soundness) lacks(m protoreflect.Message, path []protoreflect.FieldDescriptor, err error) bool {
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
		case !s.lacks(m.Get(fd).Message(), append(path[:len(path):len(path)], fd), of.Cause()):
			return false
		}
	}
	if missing && len(path) > 0 {
		s.parts = append(s.parts, path)
	}
	return true
}

// statedAs returns the populated field of m that has the given name in Go's spelling, and true. If the name is that of
// a oneof with a populated field, statedAs returns nil and true. Otherwise it returns nil and false.
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
