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

// decoded is the value of one patch as an Envoy message, which all resources share that the patch is applied to: it is
// never changed.
type decoded struct {
	message proto.Message
	err     error        // that it does not decode; names the EnvoyFilter and the field
	check   func() error // Check of the message as a whole, made once
	sound   func() soundness
	fields  func() []field // that the message states
}

// values has the decoded patches of each EnvoyFilter, for as long as anybody holds the record: a patch is decoded once,
// however many
// resources it is applied to.
var values sync.Map // weak.Pointer[model.EnvoyFilter] -> *sync.Map of place -> func() decoded

// place is one patch of an EnvoyFilter, decoded as one type.
type place struct {
	index int
	of    protoreflect.FullName
}

// valueOf is the patch's value, decoded as a message of a type.
func valueOf(p model.Patch, of protoreflect.MessageType) decoded {
	filter := weak.Make(p.Filter)
	patches, known := values.Load(filter)
	if !known {
		var had bool
		if patches, had = values.LoadOrStore(filter, &sync.Map{}); !had {
			runtime.AddCleanup(p.Filter, func(gone weak.Pointer[model.EnvoyFilter]) { values.Delete(gone) }, filter)
		}
	}
	at := place{p.Index, of.Descriptor().FullName()}
	value, known := patches.(*sync.Map).Load(at)
	if !known { // OnceValue lets go of the function, and with it of the record, once it was called
		value, _ = patches.(*sync.Map).LoadOrStore(at, sync.OnceValue(func() decoded { return decode(p, of) }))
	}
	return value.(func() decoded)()
}

// decode reads the patch's value as a message of a type.
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

// shared is the patch's value as a message of the type M, which is not to be changed.
func shared[M proto.Message](p model.Patch) (M, error) {
	var none M
	value := valueOf(p, none.ProtoReflect().Type())
	if value.err != nil {
		return none, value.err
	}
	return value.message.(M), nil
}

// whole is shared of a value that is no part of a message: an error, too, where Envoy would refuse it.
func whole[M proto.Message](p model.Patch) (M, error) {
	m, err := shared[M](p)
	if err == nil {
		err = valueOf(p, m.ProtoReflect().Type()).check()
	}
	return m, err
}

// Decode reads the patch's value as an Envoy message. Unknown fields and unknown types inside an Any are errors; the
// error names the EnvoyFilter and the field. `into` is filled from empty with a copy of its own; after an error it is
// as it was.
func Decode(p model.Patch, into proto.Message) error {
	value := valueOf(p, into.ProtoReflect().Type())
	if value.err != nil {
		return value.err
	}
	proto.Reset(into)
	proto.Merge(into, value.message)
	return nil
}
