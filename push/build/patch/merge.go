// Package patch applies the patches of EnvoyFilters to Envoy's messages, and determines which patches match a
// resource. A patch is one entry of configPatches. Patches with values that Envoy would refuse are left out of
// resources, and reported as errors (Left). The functions are safe for concurrent use if no two calls change the same
// message.
//
// Owns: caches of decoded values and of message types. Reads: its arguments only. Never: reads the snapshot of all
// records; decodes a resource that is already encoded.
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

// position matches the prefix of protojson's errors, which contains a position in the JSON text.
var position = regexp.MustCompile(`^proto:\s*(syntax error )?\(line \d+:\d+\): `)

// readable returns an error of protojson without parts that are useless for users. These are positions in generated
// JSON, and no-break spaces, which become plain spaces. The protobuf library adds no-break spaces to keep programs from
// comparing error texts.
func readable(err error) error {
	return errors.New(position.ReplaceAllString(strings.ReplaceAll(err.Error(), "\u00a0", " "), ""))
}

// merges reports whether the operation of a patch is MERGE or MERGE_AND_REPLACE_LIST
// (istio: isMergeOperation of pilot/pkg/networking/core/envoyfilter/util.go).
func merges(p model.Patch) bool {
	op := operation(p)
	return op == networkingv1.EnvoyFilter_Patch_MERGE || op == networkingv1.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST
}

// Merge merges the patch's value into a message by the rules of Istio's MERGE
// (https://istio.io/latest/docs/reference/config/networking/envoy-filter/#EnvoyFilter-Patch-Operation):
//
//   - Fields that the value does not state are unchanged.
//   - Messages are merged field by field. Durations, timestamps, percentages and wrappers are replaced as one value.
//   - Lists are appended. MERGE_AND_REPLACE_LIST replaces lists, also inside an Any
//     (https://github.com/istio/istio/pull/61269).
//   - An entry of a map replaces the entry with the same key.
//   - An Any is merged with an Any of the same type, and replaced otherwise.
//
// A value with a transport_socket is merged like other values. Istio merges only the transport_socket of such a value.
// After Merge, the message shares the values of its maps with the patch's value, so these map values are read-only.
//
// Merge fails if the value is missing or does not decode, or if an Any in the message does not decode. If an Any does
// not decode, Merge may have merged a part of the value already. The error is a model.Problem of the patch.
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

// field is a field that a patch's value states.
type field struct {
	protoreflect.FieldDescriptor
	value   protoreflect.Value
	fields  []field // stated fields of a message that is merged field by field
	entries []entry // entries of a map
}

// entry is one entry of a map.
type entry struct {
	key   protoreflect.MapKey
	value protoreflect.Value
}

// fieldsOf returns the fields that a message states. The search for these fields costs more than a merge, so the type
// decoded caches the result for a patch's value.
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

// isAny reports whether a field is an Any.
func isAny(fd protoreflect.FieldDescriptor) bool { return fd.Message().FullName() == anyName }

// merger merges values by the rules of Merge.
type merger struct{ replaceLists bool }

// message merges src, the fields of a value, into dst.
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
			dst.Set(f.FieldDescriptor, copyOf(f.value))
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

// copyOf returns a copy of v if v is a message, because later patches may be merged into the copy. It returns any other
// value unchanged.
func copyOf(v protoreflect.Value) protoreflect.Value {
	if m, is := v.Interface().(protoreflect.Message); is {
		return protoreflect.ValueOfMessage(proto.Clone(m.Interface()).ProtoReflect())
	}
	return v
}

// list appends src to dst, or replaces dst by src.
func (m merger) list(dst, src protoreflect.List) {
	if m.replaceLists {
		dst.Truncate(0)
	}
	for i := range src.Len() {
		dst.Append(copyOf(src.Get(i)))
	}
}

// isValue reports whether a message is replaced as one value. A merge field by field would make 1.5 s of the durations
// 1 s and 500 ms. It would ignore a wrapped false, so a wrapped true would stay true
// (https://github.com/golang/protobuf/issues/1359).
func isValue(d protoreflect.MessageDescriptor) bool {
	switch d.FullName() {
	case "google.protobuf.Duration", "google.protobuf.Timestamp", "envoy.type.v3.Percent":
		return true
	}
	return d.ParentFile().Path() == "google/protobuf/wrappers.proto"
}

// any merges an Any into the field fd of holder, or replaces the field if the types of the two Anys differ.
func (m merger) any(holder protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) error {
	dst, src := holder.Get(fd).Message().Interface().(*anypb.Any), v.Message().Interface().(*anypb.Any)
	if dst.MessageName() != src.MessageName() || dst.MessageName() == "" {
		holder.Set(fd, copyOf(v))
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
