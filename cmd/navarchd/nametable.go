package main

import (
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
)

// named is a view that can have a name table (plan.Proxy).
type named interface{ Names() *manifest.Manifest }

// nameTable is the names that agents ask for which answer DNS for their Pod, stock ones too. It is planned once somebody of the scope asks; until
// it is planned there is none, and the agent is told when there is.
func nameTable() serve.AgentType {
	return serve.AgentType{TypeURL: agentapi.NameTableURL, Resource: func(_ serve.Client, v serve.Proxy) *serve.AgentResource {
		if n, is := v.(named); is {
			return serve.PlannedAgentResource(n.Names())
		}
		return nil
	}}
}
