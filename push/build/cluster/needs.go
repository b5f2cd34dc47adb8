package cluster

import (
	"bytes"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
)

// needs lists the assignment and the secrets that Envoy warms a cluster for.
type needs struct {
	refs    []xds.Ref // its assignment
	secrets []string  // each once
	unseen  bool      // xds.Resource.WarmsUnseen
}

// encode makes the resource of a cluster.
func encode(name string, c *clusterv3.Cluster, n needs) (*xds.Resource, error) {
	r, err := xds.Encode(xds.Cluster, name, c, n.refs...)
	if err == nil {
		r.Secrets, r.WarmsUnseen = n.secrets, n.unseen
	}
	return r, err
}

// needsOf is what a cluster needs of its assignment over ADS; nothing of one of another kind, which Envoy warms by
// itself.
func needsOf(c *clusterv3.Cluster) needs {
	if c.GetType() != clusterv3.Cluster_EDS || c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil {
		return needs{}
	}
	name := c.GetEdsClusterConfig().GetServiceName()
	if name == "" {
		name = c.Name
	}
	n := needs{refs: []xds.Ref{{Type: xds.Endpoint, Name: name}}, unseen: len(c.GetHealthChecks()) > 0}
	n.socket(c.GetTransportSocket())
	for _, m := range c.GetTransportSocketMatches() {
		n.socket(m.GetTransportSocket())
	}
	return n
}

// tlsURL is a part of the type URL of a TLS context.
var tlsURL = []byte("envoy.extensions.transport_sockets.tls.")

// socket adds the secrets of a transport socket.
func (n *needs) socket(s *corev3.TransportSocket) {
	config := s.GetTypedConfig()
	if config == nil {
		return
	}
	if tls := (&tlsv3.UpstreamTlsContext{}); config.MessageIs(tls) {
		if config.UnmarshalTo(tls) != nil {
			n.unseen = true // Envoy refuses it
			return
		}
		common := tls.GetCommonTlsContext()
		for _, s := range common.GetTlsCertificateSdsSecretConfigs() {
			n.secret(s)
		}
		n.secret(common.GetValidationContextSdsSecretConfig())
		n.secret(common.GetCombinedValidationContext().GetValidationContextSdsSecretConfig())
		return
	}
	if wrap := (&proxyprotocolv3.ProxyProtocolUpstreamTransport{}); config.MessageIs(wrap) && config.UnmarshalTo(wrap) == nil {
		n.socket(wrap.GetTransportSocket())
		return
	}
	n.unseen = n.unseen || bytes.Contains(config.GetValue(), tlsURL) // inside of a socket of an EnvoyFilter's
}

func (n *needs) secret(s *tlsv3.SdsSecretConfig) {
	if name := s.GetName(); name != "" && !slices.Contains(n.secrets, name) {
		n.secrets = append(n.secrets, name)
	}
}
