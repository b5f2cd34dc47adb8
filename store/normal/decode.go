package normal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	kjson "sigs.k8s.io/json"

	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// spec decodes the spec of an object into an Istio message. Unknown fields are ignored with a warning, as in istiod.
// Any other mismatch is an error at its path. If spec returns false, the message must not be used.
func (r *report) spec(obj *object.Object, into proto.Message) bool {
	var whole struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("spec", "%v", err)
		return false
	}
	if len(whole.Spec) == 0 || string(whole.Spec) == "null" {
		return true // a missing spec; each kind decides whether it is allowed
	}
	return r.message(whole.Spec, "spec", into)
}

// message decodes JSON into a protobuf message. The paths of problems begin with path. Fields without effect are
// warnings (store/normal/fields). If message returns false, the argument into must not be used.
func (r *report) message(raw []byte, path string, into proto.Message) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		r.errorf(path, "%v", err)
		return false
	}
	before := r.spoiled
	r.spoiled, r.rewritten = false, false
	tree = r.walkMessage(tree, path, into.ProtoReflect().Descriptor())
	bad := r.spoiled
	r.spoiled = r.spoiled || before
	if bad {
		return false
	}
	if r.rewritten || protojson.Unmarshal(raw, into) != nil { // raw may have a key twice, or bytes that are not UTF-8
		canonical, err := json.Marshal(tree)
		if err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(canonical, into)
		}
		if err != nil {
			r.errorf(path, "%s", decodeMessage(err))
			return false
		}
	}
	fields.Unacted(into, path, r.unacted)
	return true
}

// protoPrefix matches the prefix of protojson's errors.
var protoPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]*(\(line \d+:\d+\):[\s\x{a0}]*)?`)

// decodeMessage returns the text of an error of protojson without its position, which refers to the re-encoded JSON.
func decodeMessage(err error) string { return protoPrefix.ReplaceAllString(err.Error(), "") }

// walkMessage validates a JSON tree against a message type, and returns it with durations in the form of protojson. In
// objects, as in Istio, durations have the form of time.ParseDuration. Unknown fields are removed.
func (r *report) walkMessage(v any, path string, md protoreflect.MessageDescriptor) any {
	r.step()
	switch md.FullName() {
	case "google.protobuf.Duration":
		return r.duration(v, path)
	case "google.protobuf.Struct":
		if _, ok := v.(map[string]any); !ok && v != nil {
			r.errorf(path, "must be an object, not %s", describe(v))
		}
		return v
	}
	if of := md.Fields().ByName("value"); of != nil && wrappers[md.FullName()] {
		return r.walkValue(v, path, of)
	}
	if strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
		return v // Timestamp, Any, Value: protojson validates them
	}
	stated, ok := v.(map[string]any)
	if !ok {
		r.errorf(path, "must be an object, not %s", describe(v))
		return v
	}
	names := make([]string, 0, len(stated))
	for name := range stated {
		names = append(names, name)
	}
	sort.Strings(names)
	set := make(once, 0, len(stated))
	for _, name := range names {
		at := path + "." + name
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(name))
		}
		if fd == nil {
			delete(stated, name)
			r.rewritten = true
			r.warnf(problem.Invalid, at, "unknown field%s", withoutIt(path, md, len(stated)))
			continue
		}
		if stated[name] != nil {
			if other := set.beside(fd, name); other != "" {
				r.errorf(at, "cannot be combined with %s", other)
			}
			stated[name] = r.walkField(stated[name], at, fd)
		}
	}
	return stated
}

// emptyMatches has what an empty message matches, for each message type of a match.
var emptyMatches = map[protoreflect.FullName]string{
	"istio.networking.v1alpha3.HTTPMatchRequest":   "request",
	"istio.networking.v1alpha3.L4MatchAttributes":  "connection",
	"istio.networking.v1alpha3.TLSMatchAttributes": "connection",
	"istio.networking.v1alpha3.StringMatch":        "value",
}

// withoutIt is the end of a message about an unknown field of a message. It is empty unless the message is a match of a
// rule without any known field, which matches everything. The argument left is the number of the other fields.
func withoutIt(path string, md protoreflect.MessageDescriptor, left int) string {
	matches := emptyMatches[md.FullName()]
	if matches == "" || left > 0 || !strings.Contains(path, ".match[") {
		return ""
	}
	return ": without it the match has no condition, and matches every " + matches
}

// wrappers are the messages that JSON represents by their value alone.
var wrappers = map[protoreflect.FullName]bool{"google.protobuf.BoolValue": true, "google.protobuf.StringValue": true,
	"google.protobuf.BytesValue": true,
	"google.protobuf.Int32Value": true, "google.protobuf.Int64Value": true, "google.protobuf.UInt32Value": true,
	"google.protobuf.UInt64Value": true,
	"google.protobuf.FloatValue":  true, "google.protobuf.DoubleValue": true}

// once lists the fields of one message that are set. Messages have few fields, so a list is faster than a map.
type once []setField

// setField is a field that is set. All fields of a oneof have the descriptor of the oneof.
type setField struct {
	of   protoreflect.Descriptor
	name string // in JSON
}

// beside records a field, and returns the name of a conflicting field that is set already. It returns "" without a
// conflict.
func (o *once) beside(fd protoreflect.FieldDescriptor, name string) string {
	var of protoreflect.Descriptor = fd
	if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
		of = one
	}
	for _, set := range *o {
		if set.of == of {
			return set.name
		}
	}
	*o = append(*o, setField{of, name})
	return ""
}

// longestKey is the maximum number of bytes of a map's key in the path of a problem. Longer keys are cut.
const longestKey = 512

// walkField validates the value of a field, and returns it as walkMessage does.
func (r *report) walkField(v any, path string, fd protoreflect.FieldDescriptor) any {
	switch {
	case fd.IsMap():
		entries, ok := v.(map[string]any)
		if !ok {
			r.errorf(path, "must be an object, not %s", describe(v))
			return v
		}
		for _, key := range sortedKeys(entries) {
			at := fmt.Sprintf("%s[%s]", path, key[:min(len(key), longestKey)]) // the path of every value below it contains the key
			if fd.MapKey().Kind() != protoreflect.StringKind {
				r.number(key, at, fd.MapKey())
			}
			entries[key] = r.walkValue(entries[key], at, fd.MapValue())
		}
	case fd.IsList():
		items, ok := v.([]any)
		if !ok {
			r.errorf(path, "must be a list, not %s", describe(v))
			return v
		}
		for i := range items {
			items[i] = r.walkValue(items[i], path+"["+strconv.Itoa(i)+"]", fd)
		}
	default:
		return r.walkValue(v, path, fd)
	}
	return v
}

// walkValue validates one value of a field, and returns it as walkMessage does.
func (r *report) walkValue(v any, path string, fd protoreflect.FieldDescriptor) any {
	if v == nil {
		r.errorf(path, "must not be null")
		return v
	}
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return r.walkMessage(v, path, fd.Message())
	case protoreflect.StringKind, protoreflect.BytesKind:
		if _, ok := v.(string); !ok {
			r.errorf(path, "must be a string, not %s (put it in quotes)", describe(v))
		}
	case protoreflect.BoolKind:
		if _, ok := v.(bool); !ok {
			r.errorf(path, "must be true or false, not %s", describe(v))
		}
	case protoreflect.EnumKind:
		if name, ok := v.(string); ok && fd.Enum().Values().ByName(protoreflect.Name(name)) == nil {
			r.errorf(path, "unknown value %q: want one of %s", name, enumNames(fd.Enum()))
		} else if number, isNumber := v.(json.Number); !ok && !isNumber {
			r.errorf(path, "must be one of %s, not %s", enumNames(fd.Enum()), describe(v))
		} else if n, err := strconv.ParseInt(number.String(), 10, 32); isNumber &&
			(err != nil || fd.Enum().Values().ByNumber(protoreflect.EnumNumber(n)) == nil) {
			r.errorf(path, "unknown value %s: want one of %s", number, enumNames(fd.Enum()))
		}
	default:
		r.number(v, path, fd)
	}
	return v
}

// number reports an error unless a value is a number within the range of a field's type.
func (r *report) number(v any, path string, fd protoreflect.FieldDescriptor) {
	text := ""
	switch t := v.(type) {
	case json.Number:
		text = t.String()
	case string:
		text = t
	default:
		r.errorf(path, "must be a number, not %s", describe(v))
		return
	}
	if bits := floats[fd.Kind()]; bits > 0 {
		if _, err := strconv.ParseFloat(text, bits); err != nil {
			r.errorf(path, "must be a number, not %s", describe(v))
		}
		return
	}
	of, whole := integers[fd.Kind()]
	switch {
	case !whole: // a bool that is a key of a map
	case of.least == 0 && strings.HasPrefix(text, "-"):
		r.errorf(path, "must not be negative")
	case !of.has(text):
		r.errorf(path, "must be a whole number from %.0f to %.0f, not %s", of.least, of.most, describe(v))
	}
}

// floats has the number of bits of the floating-point types.
var floats = map[protoreflect.Kind]int{protoreflect.FloatKind: 32, protoreflect.DoubleKind: 64}

// bounds is the range of an integer type.
type bounds struct{ least, most float64 }

var (
	int32s, uint32s = bounds{math.MinInt32, math.MaxInt32}, bounds{0, math.MaxUint32}
	int64s, uint64s = bounds{math.MinInt64, math.MaxInt64}, bounds{0, math.MaxUint64}
	integers        = map[protoreflect.Kind]bounds{
		protoreflect.Int32Kind: int32s, protoreflect.Sint32Kind: int32s, protoreflect.Sfixed32Kind: int32s, protoreflect.Uint32Kind: uint32s,
		protoreflect.Fixed32Kind: uint32s,
		protoreflect.Int64Kind:   int64s, protoreflect.Sint64Kind: int64s, protoreflect.Sfixed64Kind: int64s, protoreflect.Uint64Kind: uint64s,
		protoreflect.Fixed64Kind: uint64s,
	}
)

// has reports whether a text is a whole number within the bounds. In JSON one number has several forms, such as 5, 5.0
// and 5e0.
func (b bounds) has(text string) bool {
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && n == math.Trunc(n) && n >= b.least && n <= b.most && !strings.ContainsAny(text, "xX_+ ")
}

// longest is the longest duration of a record, 100 years. Envoy refuses configuration with durations of some 292 years,
// and may add two durations or multiply one.
const longest = 100 * 365 * 24 * time.Hour

// duration converts a duration of the form of time.ParseDuration ("500ms", "1m") into the form of protojson ("0.500s").
// Longer durations than longest are converted to longest.
func (r *report) duration(v any, path string) any {
	text, ok := v.(string)
	if !ok {
		r.errorf(path, "must be a duration such as 10s, not %s", describe(v))
		return v
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		r.errorf(path, "%q is not a duration such as 10s or 500ms", text)
		return v
	}
	canonical, err := protojson.Marshal(durationpb.New(max(min(d, longest), -longest)))
	if err != nil {
		r.errorf(path, "%v", err)
		return v
	}
	stated := text
	text = strings.Trim(string(canonical), `"`)
	r.rewritten = r.rewritten || text != stated
	return text
}

// describe formats a JSON value for an error message.
func describe(v any) string {
	switch t := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q", t)
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}

// enumNames lists the names of an enum's values.
func enumNames(ed protoreflect.EnumDescriptor) string {
	var names []string
	for i := range ed.Values().Len() {
		names = append(names, string(ed.Values().Get(i).Name()))
	}
	return strings.Join(names, ", ")
}

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// kubernetes decodes a whole object into its Kubernetes type. Unknown fields are warnings. If the object cannot be
// decoded, kubernetes reports an error and returns false.
func (r *report) kubernetes(obj *object.Object, into any) bool {
	strict, err := kjson.UnmarshalStrict(obj.JSON, into)
	for _, s := range strict {
		var at kjson.FieldError
		if errors.As(s, &at) {
			r.warnf(problem.Invalid, at.FieldPath(), "unknown field")
		} else {
			r.warnf(problem.Invalid, "", "%v", s)
		}
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return true
	case errors.As(err, &wrong):
		r.errorf(wrong.Field, "must be of type %s, not %s", wrong.Type, wrong.Value)
	default:
		r.errorf("", "%v", err)
	}
	return false
}
