package main

import (
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
)

// named is a planned proxy (plan.Proxy). Names returns the proxy's name table (DNS names and their addresses).
type named interface{ Names() *manifest.Manifest }

// nameTable returns the resource type of name tables, for agents that answer DNS queries, such as Istio's agent.
// Proxies that see the same services share one table. The table is planned after the first request for it. The agent is
// notified when the table is ready.
func nameTable() serve.AgentType {
	return serve.AgentType{TypeURL: agentapi.NameTableURL, Resource: func(_ serve.Client, v serve.Proxy) *serve.AgentResource {
		if n, is := v.(named); is {
			return serve.PlannedAgentResource(n.Names())
		}
		return nil
	}}
}
