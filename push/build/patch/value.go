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

// decoded is the value of one patch as an Envoy message. All resources to which the patch is applied share it, so it is
// never changed.
type decoded struct {
	message proto.Message
	err     error            // why the value does not decode; names the EnvoyFilter and the field
	check   func() error     // the result of Check for the whole message, computed once
	sound   func() soundness // computed once
	fields  func() []field   // the fields that the message states, computed once
}

// values caches the decoded patches of each EnvoyFilter while its record is alive: a patch is decoded once for all
// resources.
var values sync.Map // weak.Pointer[model.EnvoyFilter] -> *sync.Map of valueKey -> func() decoded

// valueKey is one patch of an EnvoyFilter, decoded as one type of message.
type valueKey struct {
	index int
	of    protoreflect.FullName
}

// valueOf returns the patch's value, decoded as a message of a type.
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
	if !known { // OnceValue drops its function after the call, and with it the reference to the record
		value, _ = patches.(*sync.Map).LoadOrStore(at, sync.OnceValue(func() decoded { return decode(p, of) }))
	}
	return value.(func() decoded)()
}

// decode decodes the patch's value as a message of a type.
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

// sharedValue returns the patch's value as a message of the type M, which the caller must not change.
func sharedValue[M proto.Message](p model.Patch) (M, error) {
	var none M
	value := valueOf(p, none.ProtoReflect().Type())
	if value.err != nil {
		return none, value.err
	}
	return value.message.(M), nil
}

// wholeValue is sharedValue for a value that must be a complete message: it is an error, too, if Envoy would refuse it.
func wholeValue[M proto.Message](p model.Patch) (M, error) {
	m, err := sharedValue[M](p)
	if err == nil {
		err = valueOf(p, m.ProtoReflect().Type()).check()
	}
	return m, err
}

// Decode decodes the patch's value into an empty Envoy message, as a copy that the caller owns. Unknown fields and
// unknown types in an Any are errors. The error names the EnvoyFilter and the field; after an error into is unchanged.
func Decode(p model.Patch, into proto.Message) error {
	value := valueOf(p, into.ProtoReflect().Type())
	if value.err != nil {
		return value.err
	}
	proto.Reset(into)
	proto.Merge(into, value.message)
	return nil
}
