package agentapi

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// BootstrapURL is the type that an agent requests before it starts Envoy: the patches of EnvoyFilters to its bootstrap.
// BootstrapName is the one resource, which every proxy has; its list of patches may be empty.
const (
	BootstrapURL  = "navarch.io/bootstrap"
	BootstrapName = "bootstrap"
)

// BootstrapPatch is one patch of an EnvoyFilter to the bootstrap.
type BootstrapPatch struct {
	From string // the EnvoyFilter and the index of the patch, for messages
	// Merge is merged into the bootstrap. It is JSON with the field names of protobuf. Objects are merged field by field,
	// but those with "@type" are replaced as one value; lists are appended; null removes a field.
	Merge map[string]any
}

// The field names of the Struct.
const (
	bootstrapPatches = "patches"
	bootstrapFrom    = "from"
	bootstrapMerge   = "merge"
)

// EncodeBootstrap encodes the body of the resource. The error is a value that JSON does not have.
func EncodeBootstrap(patches []BootstrapPatch) (*structpb.Struct, error) {
	list := make([]any, 0, len(patches))
	for _, p := range patches {
		list = append(list, map[string]any{bootstrapFrom: p.From, bootstrapMerge: p.Merge})
	}
	return structpb.NewStruct(map[string]any{bootstrapPatches: list})
}

// DecodeBootstrap decodes the body of the resource. The error is a message that is not a Struct, or a patch without an
// object to merge.
func DecodeBootstrap(body *anypb.Any) ([]BootstrapPatch, error) {
	var fields structpb.Struct
	if err := body.UnmarshalTo(&fields); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	var patches []BootstrapPatch
	for _, one := range fields.GetFields()[bootstrapPatches].GetListValue().GetValues() {
		p := one.GetStructValue().GetFields()
		if p[bootstrapMerge].GetStructValue() == nil {
			return nil, errors.New("bootstrap: a patch without an object to merge")
		}
		patches = append(patches, BootstrapPatch{
			From: p[bootstrapFrom].GetStringValue(), Merge: p[bootstrapMerge].GetStructValue().AsMap()})
	}
	return patches, nil
}
