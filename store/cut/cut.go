// Package cut replaces values that look like credentials, in protobuf messages, JSON and texts. A value is cut if the
// name of its key is that of a credential (password, token, authorization ...). It is also cut if it has the form of a
// credential (a private key in PEM, a token, a password in a URL). All functions are safe for concurrent use.
//
// Owns: the list of names (words.go) and the table of forms (forms.go).
// Reads: its argument only.
// Never: keeps a value that it has cut.
package cut

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"unsafe"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// Cut is the text in the place of a credential that was cut. Values that cannot be a text, and messages whose encoding
// would break, are cleared instead.
const Cut = "[cut]"

// public matches keys whose values only name, locate or describe a credential, although the key has a word for a
// credential.
var public = regexp.MustCompile(`(?i)(name|uri|url|path|file|issuer|ttl|header|prefix|location|audiences?|duration)s?$|` +
	`(?i)environment_?variable$|^(tls_certificate_sds_secret|validation_context_sds_secret)`)

// Key reports whether the values of a key are credentials. It searches the name for words such as token, in upper or
// lower case. It returns false for a name such as token_url or secretName, because such a value only refers to a
// credential.
func Key(name string) bool { return names.in(name) && !public.MatchString(name) }

// assigned matches the name of a credential, then = or a colon, and the value. It is for log lines and incomplete JSON.
var assigned = regexp.MustCompile(`(?i)(\b[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|credential|authorization)` +
	`\\?"?\s?[=:]\s?\\?"?)[^\s",;&]+`)

// Suspects reports whether an encoded message, or a JSON text, may have a value to cut. It is fast, because it searches
// for words only. If it returns false for a JSON text, JSON cuts nothing. If it returns false for a message, Message
// may still cut fields that are credentials by their own name or annotation, but none inside an Any.
func Suspects(encoded []byte) bool {
	return suspects(unsafe.String(unsafe.SliceData(encoded), len(encoded))) // the string is not retained
}

// suspects is Suspects for a string.
func suspects(text string) bool { return suspicious.in(text) || hasUser(text) }

// String returns a text with Cut in place of each part that has the form of a credential. Other texts are returned
// unchanged.
func String(s string) string {
	if !suspects(s) {
		return s
	}
	for _, form := range forms {
		s = form.text.ReplaceAllString(s, "${1}"+Cut+"${2}")
	}
	return s
}

// Text returns a copy of a text with credentials cut. It finds credentials by their form. It also finds them by the
// name of a credential, followed by = or a colon.
func Text(text []byte) []byte {
	for _, form := range forms {
		text = form.text.ReplaceAll(text, []byte("${1}"+Cut+"${2}"))
	}
	return assigned.ReplaceAll(text, []byte("${1}"+Cut))
}

// Map returns a copy of m with credentials cut. It finds credentials by their key or form. If there is nothing to cut,
// it returns m itself. Empty values stay empty. Map does not change m.
func Map(m map[string]string) map[string]string {
	var copied map[string]string
	for key, value := range m {
		now := String(value)
		if Key(key) && value != "" {
			now = Cut
		}
		if now == value {
			continue
		}
		if copied == nil {
			copied = maps.Clone(m)
		}
		copied[key] = now
	}
	if copied == nil {
		return m
	}
	return copied
}

// JSON returns JSON with credentials cut, by the names of its fields and the forms of its strings. The result is
// indented by one space, and its fields are sorted. If Suspects(raw) is false, JSON returns raw itself. If raw is not
// exactly one JSON value, JSON returns the result of Text. JSON does not change raw.
func JSON(raw []byte) []byte {
	if !Suspects(raw) {
		return raw
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return Text(raw)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) { // More is false before a bracket without a partner
		return Text(raw)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if encoder.Encode(value("", v)) != nil {
		return nil
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// value cuts a JSON value in place and returns it. The parameter key is the name of the value's field.
func value(key string, v any) any {
	switch v := v.(type) {
	case string:
		if Key(key) && v != "" {
			return Cut
		}
		return String(v)
	case []any:
		for i := range v {
			v[i] = value(key, v[i])
		}
	case map[string]any:
		named := isNamed(v)
		for k, inner := range v {
			switch {
			case named && valueFields[k]:
				v[k] = Cut
			case secretFields[key] && !public.MatchString(k), inlineFields[k] && Key(key):
				v[k] = value(password, inner)
			default:
				v[k] = value(k, inner)
			}
		}
	}
	return v
}

// password is the key under which the function value cuts a whole value.
const password = "password"

// Fields of objects that pair a name and a value, such as headers.
var (
	nameFields  = map[string]bool{"key": true, "name": true, "header": true, "header_name": true}
	valueFields = map[string]bool{"value": true, "values": true, "not_values": true, "notValues": true, "raw_value": true,
		"string_match": true, "exact_match": true, "stringMatch": true, "exactMatch": true, "rawValue": true}
	// inlineFields are the fields of a source of data that contain the data itself.
	inlineFields = map[string]bool{"inline_string": true, "inline_bytes": true, "inlineString": true, "inlineBytes": true}
)

// isNamed reports whether an object pairs a value with the name of a credential.
func isNamed(v map[string]any) bool {
	for k, inner := range v {
		if name, is := inner.(string); is && nameFields[k] && Key(name) {
			return true
		}
	}
	return false
}

// Message cuts the credentials of a message in place, and reports whether it found any. The message must not be nil.
func Message(m proto.Message) bool { return message(m.ProtoReflect(), 0) }

// maxDepth bounds the nesting of messages. Deeper messages are cleared.
const maxDepth = 100

// message does the work of Message. The parameter depth is the number of messages around m.
func message(m protoreflect.Message, depth int) (found bool) {
	if depth > maxDepth {
		proto.Reset(m.Interface())
		return true
	}
	switch v := m.Interface().(type) {
	case *anypb.Any:
		return packed(v, depth)
	case *structpb.Struct:
		return structure(v, depth)
	}
	named := pairs(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if named && valueFields[string(f.Name())] {
			replace(m, f)
			found = true
			return true
		}
		found = field(m, f, v, depth) || found
		return true
	})
	return found
}

// replace sets a field to Cut. A field is cleared if it is neither a text nor a list of texts.
func replace(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	m.Clear(f)
	switch {
	case f.Kind() != protoreflect.StringKind || f.IsMap():
	case f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString(Cut))
	default:
		m.Set(f, protoreflect.ValueOfString(Cut))
	}
}

// Field reports whether the values of a field of the message m are credentials. It returns true for the names of some
// fields (such as password), for Envoy's annotation "sensitive", and if m pairs the field with the name of a
// credential. The message m must be valid.
func Field(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	return sensitive(f) || valueFields[string(f.Name())] && pairs(m)
}

// pairs reports whether a message pairs a value with the name of a credential, as a header does.
func pairs(m protoreflect.Message) (named bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		named = f.Kind() == protoreflect.StringKind && !f.IsList() && !f.IsMap() && nameFields[string(f.Name())] && Key(v.String())
		return !named
	})
	return named
}

// field cuts one field of a message.
func field(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) (found bool) {
	isText := f.Kind() == protoreflect.StringKind
	isMessage := f.Kind() == protoreflect.MessageKind || f.Kind() == protoreflect.GroupKind
	switch {
	case sensitive(f) && (isMessage || f.Kind() == protoreflect.BytesKind):
		return hide(m, f, v, depth)
	case f.IsMap():
		return entries(f, v.Map(), depth)
	case f.IsList() && isText:
		for i := range v.List().Len() {
			if was := v.List().Get(i).String(); String(was) != was {
				v.List().Set(i, protoreflect.ValueOfString(String(was)))
				found = true
			}
		}
	case f.IsList() && isMessage:
		for i := range v.List().Len() {
			found = message(v.List().Get(i).Message(), depth+1) || found
		}
	case isMessage:
		return message(v.Message(), depth+1)
	case isText:
		was := v.String()
		now := String(was)
		if sensitive(f) {
			now = Cut
		}
		if now != was {
			m.Set(f, protoreflect.ValueOfString(now))
			return true
		}
	case f.Kind() == protoreflect.BytesKind && !f.IsList():
		if now := String(string(v.Bytes())); now != string(v.Bytes()) {
			m.Set(f, protoreflect.ValueOfBytes([]byte(now)))
			return true
		}
	}
	return found
}

// entries cuts the values of a map.
func entries(f protoreflect.FieldDescriptor, m protoreflect.Map, depth int) (found bool) {
	text := f.MapValue().Kind() == protoreflect.StringKind
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		secret := f.MapKey().Kind() == protoreflect.StringKind && Key(k.String())
		switch {
		case text:
			now := String(v.String())
			if secret && now != "" {
				now = Cut
			}
			if now != v.String() {
				m.Set(k, protoreflect.ValueOfString(now))
				found = true
			}
		case f.MapValue().Kind() == protoreflect.MessageKind && secret:
			found = texts(v.Message(), depth+1) || found
		case f.MapValue().Kind() == protoreflect.MessageKind:
			found = message(v.Message(), depth+1) || found
		}
		return true
	})
	return found
}

// structure cuts a JSON object in a message.
func structure(s *structpb.Struct, depth int) (found bool) {
	was := s.AsMap()
	if depth > maxDepth/2 {
		s.Fields = nil
		return len(was) > 0
	}
	now, err := structpb.NewStruct(value("", was).(map[string]any))
	if err != nil {
		s.Fields = nil
		return true
	}
	if proto.Equal(s, now) {
		return false
	}
	s.Fields = now.Fields
	return true
}

// packed cuts the message in an Any. The value of an Any of an unknown type is cleared if it contains a text with the
// form of a credential.
func packed(a *anypb.Any, depth int) bool {
	if !Suspects(a.Value) && !suspects(a.TypeUrl) {
		return false
	}
	inner, err := a.UnmarshalNew()
	if err != nil {
		if String(string(a.Value)) != string(a.Value) { // a cut would break the encoding
			a.Value = nil
			return true
		}
		return false
	}
	if !message(inner.ProtoReflect(), depth+1) {
		return false
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(inner)
	if err != nil {
		raw = nil
	}
	a.Value = raw
	return true
}
