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
	"navarch.io/navarch/store/problem"
)

// Decode reads the patch's value as an Envoy message. Unknown fields and unknown types inside an Any are errors; the
// error names the EnvoyFilter and the field. `into` is filled from empty; after an error its content is undefined.
func Decode(p model.Patch, into proto.Message) error {
	value := p.Config().GetPatch().GetValue()
	if value == nil {
		return faultOf(p, problem.Required, "patch.value", errors.New("is missing"))
	}
	if err := unmarshal(value, into, false); err != nil {
		return fault(p, "patch.value", err)
	}
	return nil
}

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
// as it was.
func Merge(p model.Patch, into proto.Message) error {
	value := into.ProtoReflect().New().Interface()
	if err := Decode(p, value); err != nil {
		return err
	}
	merged := proto.Clone(into)
	m := merger{replaceLists: operation(p) == networkingv1.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST}
	if err := m.message(merged.ProtoReflect(), value.ProtoReflect()); err != nil {
		return fault(p, "patch.value", err)
	}
	proto.Reset(into)
	proto.Merge(into, merged)
	return nil
}

type merger struct{ replaceLists bool }

func (m merger) message(dst, src protoreflect.Message) error {
	var err error
	src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList():
			m.list(dst.Mutable(fd).List(), v.List())
		case fd.IsMap():
			to := dst.Mutable(fd).Map()
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				to.Set(k, v)
				return true
			})
		case fd.Message() == nil, !dst.Has(fd), isValue(fd.Message()):
			dst.Set(fd, v)
		case fd.Message().FullName() == "google.protobuf.Any":
			err = m.any(dst, fd, v)
		default:
			err = m.message(dst.Mutable(fd).Message(), v.Message())
		}
		return err == nil
	})
	return err
}

func (m merger) list(dst, src protoreflect.List) {
	if m.replaceLists {
		dst.Truncate(0)
	}
	for i := range src.Len() {
		dst.Append(src.Get(i))
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
		holder.Set(fd, v)
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
	if err := m.message(inner.ProtoReflect(), value.ProtoReflect()); err != nil {
		return err
	}
	holder.Set(fd, protoreflect.ValueOfMessage(xds.Any(inner).ProtoReflect()))
	return nil
}
