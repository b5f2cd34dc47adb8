package main

import (
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
)

// bootstrapPatches are what agents ask for before they start Envoy. Where no patch is for a proxy, all have the same answer, so that none waits.
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
