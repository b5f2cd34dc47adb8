package main

import (
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
)

// named is a proxy whose view has a name table (plan.Proxy).
type named interface{ Names() *manifest.Manifest }

// nameTable returns the resource type of name tables, for agents that answer DNS, including Istio's agent. A scope is
// the set of services that a group of proxies sees. The table of a scope is planned after the first request for it. The
// agent is notified when the table is ready.
func nameTable() serve.AgentType {
	return serve.AgentType{TypeURL: agentapi.NameTableURL, Resource: func(_ serve.Client, v serve.Proxy) *serve.AgentResource {
		if n, is := v.(named); is {
			return serve.PlannedAgentResource(n.Names())
		}
		return nil
	}}
}
