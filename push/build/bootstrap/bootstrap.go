// Package bootstrap builds the changes that EnvoyFilters (applyTo BOOTSTRAP) make to the bootstrap of a proxy's Envoy.
// The proxy's agent applies the changes to the bootstrap that it writes.
//
// Owns: nothing. Reads: Patches only. Never: builds a whole bootstrap, which only the agent has.
package bootstrap

import (
	"encoding/json"
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Patches contains the patches of EnvoyFilters from which Build makes the changes of a proxy's bootstrap.
type Patches struct {
	List intern.List[model.Patch] // patches for which patch.MergesBootstrap is true, in order of application
}

// Build encodes the patches as the list in one resource with the name agentapi.BootstrapName. Without patches the list
// is empty. A patch that does not decode is left out, and patch.Problem reports such a patch. Build fails if the value
// of a patch or the resource does not marshal. For a value, the error names the EnvoyFilter.
func (p Patches) Build() (*xds.Resource, error) {
	var all []agentapi.BootstrapPatch
	for _, one := range p.List.All() {
		value := &bootstrapv3.Bootstrap{}
		if patch.Decode(one, value) != nil {
			continue
		}
		merge, err := mergeOf(value)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", one.Filter.Key, err)
		}
		from := fmt.Sprintf("%v: spec.configPatches[%d]", one.Filter.Key, one.Index)
		all = append(all, agentapi.BootstrapPatch{From: from, Merge: merge})
	}
	message, err := agentapi.EncodeBootstrap(all)
	if err != nil {
		return nil, err
	}
	body := &anypb.Any{}
	if err := anypb.MarshalFrom(body, message, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, err
	}
	return xds.EncodeAny(agentapi.BootstrapName, body)
}

// mergeOf returns the value of a patch in the form of agentapi.BootstrapPatch.Merge, the JSON of the fields that are
// set. For each oneof with a set member, the other members are null. The agent does not know the message types. The
// nulls make its merge of JSON give the same result as a merge of protobuf messages.
func mergeOf(b *bootstrapv3.Bootstrap) (map[string]any, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	clearOthers(b.ProtoReflect(), out)
	return out, nil
}

// clearOthers adds nulls to the JSON of the message m. For each oneof with a set member, it adds one null for each
// other member. It also adds nulls for the messages inside m that are merged field by field. Messages in lists and
// maps, and messages of google.protobuf (Any, Struct, durations), are replaced as a whole, so they need no nulls.
func clearOthers(m protoreflect.Message, into map[string]any) {
	oneofs := m.Descriptor().Oneofs()
	for i := range oneofs.Len() {
		stated := m.WhichOneof(oneofs.Get(i))
		if stated == nil || oneofs.Get(i).IsSynthetic() {
			continue
		}
		members := oneofs.Get(i).Fields()
		for j := range members.Len() {
			if name := members.Get(j).TextName(); name != stated.TextName() {
				into[name] = nil
			}
		}
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Message() == nil || fd.IsList() || fd.IsMap() || fd.Message().FullName().Parent() == "google.protobuf" {
			return true
		}
		if inner, is := into[fd.TextName()].(map[string]any); is {
			clearOthers(v.Message(), inner)
		}
		return true
	})
}
