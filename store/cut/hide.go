package cut

import (
	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// secretFields has the names of fields of Istio's and Envoy's messages whose values are credentials. Such a value is a
// text or a message.
var secretFields = map[string]bool{password: true, "access_token": true, "api_key": true, "client_secret": true, "private_key": true,
	"accessToken": true, "apiKey": true, "clientSecret": true, "privateKey": true}

// sensitive reports whether the values of a field are credentials, by its name or by Envoy's annotation.
func sensitive(f protoreflect.FieldDescriptor) bool {
	if secretFields[string(f.Name())] {
		return true
	}
	is, _ := proto.GetExtension(f.Options(), annotations.E_Sensitive).(bool)
	return is
}

// texts cuts all texts and bytes of a message that is a credential, such as the match of a header, or the source of a
// password. Fields that only name a credential, such as a file or an environment variable, are not changed.
func texts(m protoreflect.Message, depth int) (found bool) {
	if depth > maxDepth {
		proto.Reset(m.Interface())
		return true
	}
	switch s := m.Interface().(type) {
	case *structpb.Value:
		now, err := structpb.NewValue(value(password, s.AsInterface()))
		if err != nil {
			now = structpb.NewStringValue(Cut)
		}
		found = !proto.Equal(s, now)
		proto.Reset(s)
		proto.Merge(s, now)
		return found
	case *structpb.Struct, *anypb.Any:
		proto.Reset(s)
		return true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !public.MatchString(string(f.Name())) {
			found = hide(m, f, v, depth) || found
		}
		return true
	})
	return found
}

// hide cuts the texts and bytes of one field of a message. It clears maps, lists of texts and lists of bytes.
func hide(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value, depth int) (found bool) {
	isText, isBytes := f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind
	switch {
	case f.IsMap() || f.IsList() && (isText || isBytes):
		m.Clear(f)
		return true
	case f.IsList() && f.Message() != nil:
		for i := range v.List().Len() {
			found = texts(v.List().Get(i).Message(), depth+1) || found
		}
	case f.Message() != nil:
		return texts(v.Message(), depth+1)
	case isText && v.String() != Cut:
		m.Set(f, protoreflect.ValueOfString(Cut))
		return true
	case isBytes && string(v.Bytes()) != Cut:
		m.Set(f, protoreflect.ValueOfBytes([]byte(Cut)))
		return true
	}
	return found
}
