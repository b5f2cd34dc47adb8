package agentapi

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// BootstrapURL is the type by which an agent asks, before it starts Envoy, for what patches of EnvoyFilters change of its bootstrap; BootstrapName is the
// one resource. It is there for every proxy: without a patch it has none.
const (
	BootstrapURL  = "navarch.io/bootstrap"
	BootstrapName = "bootstrap"
)

// BootstrapPatch is one patch.
type BootstrapPatch struct {
	From string // the EnvoyFilter, and which of its patches
	// Merge is merged into the bootstrap, JSON with the names of protobuf: objects field by field, but those with "@type" as one value; lists are
	// appended to; null takes a field away.
	Merge map[string]any
}

const (
	bootstrapPatches = "patches"
	bootstrapFrom    = "from"
	bootstrapMerge   = "merge"
)

// EncodeBootstrap is the body of the resource. An error is a value that JSON does not have.
func EncodeBootstrap(patches []BootstrapPatch) (*structpb.Struct, error) {
	list := make([]any, 0, len(patches))
	for _, p := range patches {
		list = append(list, map[string]any{bootstrapFrom: p.From, bootstrapMerge: p.Merge})
	}
	return structpb.NewStruct(map[string]any{bootstrapPatches: list})
}

// DecodeBootstrap reads the body of the resource. An error is another message than a Struct, or patches that are not as described here.
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
		patches = append(patches, BootstrapPatch{From: p[bootstrapFrom].GetStringValue(), Merge: p[bootstrapMerge].GetStructValue().AsMap()})
	}
	return patches, nil
}
