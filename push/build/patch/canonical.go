package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/store/problem"
)

// unmarshal decodes a value into a message, as istiod does. Durations may be in the notation of time.ParseDuration
// ("250ms"), which protojson does not accept. If lenient is true, unknown fields are ignored. The error describes the
// invalid field.
func unmarshal(value *structpb.Struct, into proto.Message, lenient bool) error {
	tree, err := canonical(value.AsMap(), into.ProtoReflect().Descriptor())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	proto.Reset(into)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: lenient}).Unmarshal(raw, into); err != nil {
		return readable(err)
	}
	return nil
}

// canonical changes the durations of a JSON tree to protojson's notation, in place, and returns the tree. It fails for
// an unknown value of an enumeration and for an Any without a type, because protojson with DiscardUnknown would ignore
// both. Other invalid values stay unchanged, and protojson refuses them.
func canonical(v any, md protoreflect.MessageDescriptor) (any, error) {
	fields, is := v.(map[string]any)
	switch name := md.FullName(); {
	case name == "google.protobuf.Duration":
		return duration(v), nil
	case is && name == "google.protobuf.Any":
		of, _ := fields["@type"].(string)
		if of == "" {
			return nil, errors.New("has no @type")
		}
		mt, err := protoregistry.GlobalTypes.FindMessageByURL(of)
		if err != nil || strings.HasPrefix(string(mt.Descriptor().FullName()), "google.protobuf.") {
			return v, nil
		}
		md = mt.Descriptor()
	case !is || strings.HasPrefix(string(name), "google.protobuf."):
		return v, nil
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByTextName(name)
		}
		if fd == nil || fields[name] == nil {
			continue
		}
		of, err := canonicalField(fields[name], fd)
		if err != nil {
			return nil, problem.Within(name, err)
		}
		fields[name] = of
	}
	return fields, nil
}

// canonicalField applies canonical to the value of a field: a map, a list or a single value.
func canonicalField(v any, fd protoreflect.FieldDescriptor) (any, error) {
	if entries, is := v.(map[string]any); is && fd.IsMap() {
		for key, of := range entries {
			one, err := canonicalValue(of, fd.MapValue())
			if err != nil {
				return nil, problem.Within("["+key+"]", err)
			}
			entries[key] = one
		}
		return v, nil
	}
	if items, is := v.([]any); is && fd.IsList() {
		for i := range items {
			one, err := canonicalValue(items[i], fd)
			if err != nil {
				return nil, problem.Within(fmt.Sprintf("[%d]", i), err)
			}
			items[i] = one
		}
		return v, nil
	}
	return canonicalValue(v, fd)
}

// canonicalValue applies canonical to a single value of a field, or to one element of a map or list.
func canonicalValue(v any, fd protoreflect.FieldDescriptor) (any, error) {
	switch {
	case fd.Message() != nil && !fd.IsMap():
		return canonical(v, fd.Message())
	case fd.Enum() != nil:
		if name, is := v.(string); is && fd.Enum().Values().ByName(protoreflect.Name(name)) == nil {
			return nil, fmt.Errorf("%q is not a value of %s", name, fd.Enum().Name())
		}
	}
	return v, nil
}

// duration converts a duration to protojson's notation. Values that are not durations are returned unchanged.
func duration(v any) any {
	text, is := v.(string)
	if !is {
		return v
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return v
	}
	out, err := protojson.Marshal(durationpb.New(d))
	if err != nil {
		return v
	}
	return strings.Trim(string(out), `"`)
}
