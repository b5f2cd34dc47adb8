package patch

import (
	"errors"
	"runtime"
	"sync"
	"weak"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// decoded is the value of one patch as an Envoy message. It is read-only, because all resources to which the patch is
// applied share it. If err is not nil, the other fields are nil.
type decoded struct {
	message proto.Message
	err     error            // reason why the value does not decode; names the EnvoyFilter and the field
	check   func() error     // returns the result of Check for the message, which is computed once
	sound   func() soundness // returns the soundness of the message, which is computed once
	fields  func() []field   // returns the fields that the message states, which are computed once
}

// values caches the decoded patches of each EnvoyFilter until the EnvoyFilter is garbage-collected. A patch is
// therefore decoded once for all resources.
var values sync.Map // weak.Pointer[model.EnvoyFilter] -> *sync.Map of valueKey -> func() decoded

// valueKey identifies the value of one patch of an EnvoyFilter, decoded as a message of the type `of`.
type valueKey struct {
	index int // index of the patch in the EnvoyFilter
	of    protoreflect.FullName
}

// valueOf returns the patch's value, decoded as a message of the given type.
func valueOf(p model.Patch, of protoreflect.MessageType) decoded {
	filter := weak.Make(p.Filter)
	patches, known := values.Load(filter)
	if !known {
		var had bool
		if patches, had = values.LoadOrStore(filter, &sync.Map{}); !had {
			runtime.AddCleanup(p.Filter, func(gone weak.Pointer[model.EnvoyFilter]) { values.Delete(gone) }, filter)
		}
	}
	at := valueKey{p.Index, of.Descriptor().FullName()}
	value, known := patches.(*sync.Map).Load(at)
	if !known { // OnceValue releases its function, and with it the EnvoyFilter, after the first call
		value, _ = patches.(*sync.Map).LoadOrStore(at, sync.OnceValue(func() decoded { return decode(p, of) }))
	}
	return value.(func() decoded)()
}

// decode decodes the patch's value as a message of the given type.
func decode(p model.Patch, of protoreflect.MessageType) decoded {
	value := p.Config().GetPatch().GetValue()
	if value == nil {
		return decoded{err: faultOf(p, problem.Required, "patch.value", errors.New("is missing"))}
	}
	message := of.New().Interface()
	if err := unmarshal(value, message, false); err != nil {
		return decoded{err: fault(p, "patch.value", err)}
	}
	return decoded{
		message: message,
		check:   sync.OnceValue(func() error { return Check(message) }),
		fields:  sync.OnceValue(func() []field { return fieldsOf(message.ProtoReflect()) }),
		sound:   sync.OnceValue(func() soundness { return soundnessOf(message) }),
	}
}

// sharedValue returns the patch's value as a message of the type M. The message is shared and read-only. The error
// names the EnvoyFilter and the field that is missing or invalid.
func sharedValue[M proto.Message](p model.Patch) (M, error) {
	var none M
	value := valueOf(p, none.ProtoReflect().Type())
	if value.err != nil {
		return none, value.err
	}
	return value.message.(M), nil
}

// wholeValue returns the result of sharedValue for a value that must be a complete message. It also fails if Envoy
// would refuse the message.
func wholeValue[M proto.Message](p model.Patch) (M, error) {
	m, err := sharedValue[M](p)
	if err == nil {
		err = valueOf(p, m.ProtoReflect().Type()).check()
	}
	return m, err
}

// Decode decodes the patch's value into a message of Envoy, and clears the message's former fields. The message shares
// nothing with the patch. Decode fails if the value is missing, a field is unknown or has an unsuitable value, or an
// Any has no type or an unknown one. Decode does not check the constraints of Envoy's API. The error is a model.Problem
// that names the EnvoyFilter and the field. After an error the message is unchanged.
func Decode(p model.Patch, into proto.Message) error {
	value := valueOf(p, into.ProtoReflect().Type())
	if value.err != nil {
		return value.err
	}
	proto.Reset(into)
	proto.Merge(into, value.message)
	return nil
}
