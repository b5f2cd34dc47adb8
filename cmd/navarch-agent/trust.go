package main

import (
	"fmt"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	caagent "navarch.io/navarch/ca/agent"
	"navarch.io/navarch/shard/relay"
)

// The mesh's trust, as the control plane pushes it to agents.
const (
	trustURL  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext"
	trustName = "ROOTCA"
)

// followTrust subscribes to roots and revocation lists, for the identity's agent and so for Envoy. What cannot be taken is
// refused, and what was taken before stands.
func followTrust(identity *caagent.Agent) relay.Subscription {
	return relay.Subscription{Type: trustURL, Names: []string{trustName}, Take: func(r *discoveryv3.Resource) error {
		context := &tlsv3.CertificateValidationContext{}
		if err := r.GetResource().UnmarshalTo(context); err != nil {
			return fmt.Errorf("%s: %w", r.GetName(), err)
		}
		return identity.SetTrust(context.GetTrustedCa().GetInlineBytes(), context.GetCrl().GetInlineBytes())
	}}
}
