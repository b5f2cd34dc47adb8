package main

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	caagent "navarch.io/navarch/ca/agent"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/shard/relay"
)

// followTrust returns the subscription that passes the mesh's roots and revocation lists to the certificate agent. The
// certificate agent serves them to Envoy. Roots or lists that cannot be decoded are rejected, and the previous ones
// stay in effect.
func followTrust(identity *caagent.Agent) relay.Subscription {
	return relay.Subscription{Type: agentapi.TrustURL, Names: []string{agentapi.TrustName}, Take: func(r *discoveryv3.Resource) error {
		trust, err := agentapi.DecodeTrust(r.GetResource())
		if err != nil {
			return err
		}
		return identity.SetTrust(trust.Roots, trust.Lists)
	}}
}
