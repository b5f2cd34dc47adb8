package main

import (
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/serve"
)

// nameTableURL is what stock agents subscribe to that resolve names for their pod (DNS capture).
const nameTableURL = "type.googleapis.com/istio.networking.nds.v1.NameTable"

// nameTable is an empty name table: this control plane resolves no names. An agent without any table is never ready and answers
// no question of its pod (istio pkg/istio-agent Agent.Check, pkg/dns/client); with an empty one it asks the resolvers of the pod.
func nameTable() (serve.AgentType, error) {
	empty, err := serve.EncodeAgentResourceBody("", &anypb.Any{TypeUrl: nameTableURL}) // a message without fields has no bytes
	if err != nil {
		return serve.AgentType{}, fmt.Errorf("name table: %w", err)
	}
	return serve.AgentType{TypeURL: nameTableURL, Resource: func(serve.Client, serve.View) *serve.AgentResource { return empty }}, nil
}
