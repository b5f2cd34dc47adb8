package main

import (
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
)

// bootstrapPatches returns the resource type that agents request before they start Envoy: patches of Envoy's bootstrap.
// Proxies without patches get an empty resource, so that their agents do not wait for patches. bootstrapPatches fails
// if the empty resource cannot be encoded.
func bootstrapPatches() (serve.AgentType, error) {
	none, err := serve.EncodeAgentResource(agentapi.BootstrapName, &structpb.Struct{})
	if err != nil {
		return serve.AgentType{}, err
	}
	return serve.AgentType{TypeURL: agentapi.BootstrapURL, Resource: func(_ serve.Client, v serve.Proxy) *serve.AgentResource {
		if r := v.Set().Bootstrap; r != nil {
			return serve.PlannedAgentResource(manifest.Of(r))
		}
		return none
	}}, nil
}
