package main

import (
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
)

// named is a view with a name table (plan.Proxy).
type named interface{ Names() *manifest.Manifest }

// nameTable returns the resource type for agents that answer DNS, stock ones included. The table is planned after the
// first request of a scope; the agent is notified when it is ready.
func nameTable() serve.AgentType {
	return serve.AgentType{TypeURL: agentapi.NameTableURL, Resource: func(_ serve.Client, v serve.Proxy) *serve.AgentResource {
		if n, is := v.(named); is {
			return serve.PlannedAgentResource(n.Names())
		}
		return nil
	}}
}
