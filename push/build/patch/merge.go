// Package patch applies the patches of EnvoyFilters to what the builders draw, and says which patches match what.
//
// Owns: nothing; the functions are pure.  Reads: the patches it is given.  Never: the snapshot; a finished resource.
package patch

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

var position = regexp.MustCompile(`^proto:\s*(syntax error )?\(line \d+:\d+\): `)

// readable takes out of protobuf's errors what says nothing to users: positions in a JSON that they never saw, and
// no-break spaces, which are there so that nobody compares the text.
func readable(err error) error {
	return errors.New(position.ReplaceAllString(strings.ReplaceAll(err.Error(), "\u00a0", " "), ""))
}

// merges says whether a patch merges its value into what it matches, of whatever it is for (istio: isMergeOperation of
// pilot/pkg/networking/core/envoyfilter/util.go). Merge tells MERGE from MERGE_AND_REPLACE_LIST.
func merges(p model.Patch) bool {
	op := operation(p)
	return op == networkingv1.EnvoyFilter_Patch_MERGE || op == networkingv1.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
}

// Merge merges the patch's value into a message as Istio's MERGE does: fields that the value does not state stay;
// messages are merged field by field, except durations, timestamps and wrappers, which are one value each; lists are
// appended (MERGE_AND_REPLACE_LIST: replaced, inside an Any too, https://github.com/istio/istio/pull/61269); map entries are replaced; an Any is merged with one of
// the same type, else replaced (https://istio.io/latest/docs/reference/config/networking/envoy-filter/#EnvoyFilter-Patch-Operation).
// Unlike Istio, a value with a transport_socket is merged whole, not its transport_socket alone. After an error `into` is
// as it was, unless an Any in it has bytes that are not of its type. What the two have in common afterwards is never
// changed: entries of maps.
func Merge(p model.Patch, into proto.Message) error {
	value := valueOf(p, into.ProtoReflect().Type())
	if value.err != nil {
		return value.err
	}
	m := merger{replaceLists: operation(p) == networkingv1.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST}
	if err := m.message(into.ProtoReflect(), value.fields()); err != nil {
		return fault(p, "patch.value", err)
	}
	return nil
}

// field is a field that a value states.
type field struct {
	protoreflect.FieldDescriptor
	value   protoreflect.Value
	fields  []field // of a message that is merged field by field
	entries []entry // of a map
}

type entry struct {
	key   protoreflect.MapKey
	value protoreflect.Value
}

// fieldsOf are the fields that a message states. To look for them takes longer than to merge them, so it is done once
// for each value.
func fieldsOf(m protoreflect.Message) (all []field) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		f := field{FieldDescriptor: fd, value: v}
		switch {
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				f.entries = append(f.entries, entry{k, v})
				return true
			})
		case fd.IsList() || fd.Message() == nil || isAny(fd) || isValue(fd.Message()):
		default:
			f.fields = fieldsOf(v.Message())
		}
		all = append(all, f)
		return true
	})
	return all
}

func isAny(fd protoreflect.FieldDescriptor) bool { return fd.Message().FullName() == anyName }

type merger struct{ replaceLists bool }

// message merges in place.
func (m merger) message(dst protoreflect.Message, src []field) error {
	for _, f := range src {
		var err error
		switch {
		case f.IsList():
			m.list(dst.Mutable(f.FieldDescriptor).List(), f.value.List())
		case f.IsMap():
			to := dst.Mutable(f.FieldDescriptor).Map()
			for _, e := range f.entries {
				to.Set(e.key, e.value)
			}
		case f.Message() == nil, !dst.Has(f.FieldDescriptor), isValue(f.Message()):
			dst.Set(f.FieldDescriptor, own(f.value))
		case isAny(f.FieldDescriptor):
			err = m.any(dst, f.FieldDescriptor, f.value)
		default:
			err = m.message(dst.Mutable(f.FieldDescriptor).Message(), f.fields)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// own is a copy of a message, into which other patches may be merged, and any other value itself.
func own(v protoreflect.Value) protoreflect.Value {
	if m, is := v.Interface().(protoreflect.Message); is {
		return protoreflect.ValueOfMessage(proto.Clone(m.Interface()).ProtoReflect())
	}
	return v
}

func (m merger) list(dst, src protoreflect.List) {
	if m.replaceLists {
		dst.Truncate(0)
	}
	for i := range src.Len() {
		dst.Append(own(src.Get(i)))
	}
}

// isValue says whether a message is one value: merged field by field, 1 s over 500 ms would be 1.5 s, and false over
// true would be true (https://github.com/golang/protobuf/issues/1359).
func isValue(d protoreflect.MessageDescriptor) bool {
	switch d.FullName() {
	case "google.protobuf.Duration", "google.protobuf.Timestamp", "envoy.type.v3.Percent":
		return true
	}
	return d.ParentFile().Path() == "google/protobuf/wrappers.proto"
}

func (m merger) any(holder protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) error {
	dst, src := holder.Get(fd).Message().Interface().(*anypb.Any), v.Message().Interface().(*anypb.Any)
	if dst.MessageName() != src.MessageName() || dst.MessageName() == "" {
		holder.Set(fd, own(v))
		return nil
	}
	inner, err := dst.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("unpack %s: %w", dst.TypeUrl, err)
	}
	value, err := src.UnmarshalNew()
	if err != nil {
		return fmt.Errorf("unpack %s: %w", src.TypeUrl, err)
	}
	if err := m.message(inner.ProtoReflect(), fieldsOf(value.ProtoReflect())); err != nil {
		return err
	}
	holder.Set(fd, protoreflect.ValueOfMessage(xds.Any(inner).ProtoReflect()))
	return nil
}
