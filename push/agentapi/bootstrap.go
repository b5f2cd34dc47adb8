package agentapi

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// BootstrapURL is the type URL of a resource that an agent requests before it starts Envoy. Every proxy has one
// resource of this type. The resource lists the patches of EnvoyFilters to the proxy's bootstrap. The list may be
// empty. BootstrapName is the name of the resource.
const (
	BootstrapURL  = "navarch.io/bootstrap"
	BootstrapName = "bootstrap"
)

// BootstrapPatch is one patch of an EnvoyFilter to the bootstrap.
type BootstrapPatch struct {
	From string // names the EnvoyFilter and the field of the patch, for messages
	// Merge is the JSON object, with protobuf's field names, that the agent merges into the bootstrap. Objects are
	// merged field by field, but objects with "@type" are replaced. Lists are appended. null removes a field.
	Merge map[string]any
}

// Field names of the Struct in the resource.
const (
	bootstrapPatches = "patches"
	bootstrapFrom    = "from"
	bootstrapMerge   = "merge"
)

// EncodeBootstrap encodes the body of the resource, in the order of patches. It fails if structpb.NewValue does not
// accept a value within a Merge, or if a string is not valid UTF-8.
func EncodeBootstrap(patches []BootstrapPatch) (*structpb.Struct, error) {
	list := make([]any, 0, len(patches))
	for _, p := range patches {
		list = append(list, map[string]any{bootstrapFrom: p.From, bootstrapMerge: p.Merge})
	}
	return structpb.NewStruct(map[string]any{bootstrapPatches: list})
}

// DecodeBootstrap decodes the body of the resource. The result is nil if there are no patches. DecodeBootstrap fails if
// the body is not a Struct, or if a patch has no object to merge.
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
