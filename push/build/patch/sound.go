package patch

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navarch.io/navarch/store/model"
)

// mergedInto returns the message with a patch merged into it. If Envoy would refuse the result, it returns the message
// unchanged, and records the patch in l. Most values keep a valid message valid (soundness), so they are merged in
// place; others are tried on a copy. The caller must own the message.
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

// soundness states into which valid messages a value can be merged so that the result is valid. The length of lists is
// not considered.
type soundness struct {
	never bool // into no message
	// parts are the messages in the value that lack required fields, as paths of fields. The target must have each of
	// these messages already.
	parts [][]protoreflect.FieldDescriptor
}

// mergesSafely reports whether the value can be merged into m without making a valid message invalid.
func (d decoded) mergesSafely(m protoreflect.Message) bool {
	if d.err != nil {
		return true // Merge returns this error, and does not change the message
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

// soundnessOf returns the soundness of a value. A value that violates Envoy's API in more than missing fields is never
// safe to merge.
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
	Field() string // the field's name in Go; with the index for a list or a map
	Cause() error  // the error of the message in the field, or nil
}

// lacks reports whether the only violations of a message m are missing fields, and adds the messages with missing
// fields to parts. at is the path of m, and err the error of its validator.
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

// statedAs returns the populated field of m with a Go name. For the name of a oneof with a populated field it returns
// nil and true.
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
