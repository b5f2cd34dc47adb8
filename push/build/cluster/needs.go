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

// references lists the resources for which Envoy waits while it warms a cluster.
type references struct {
	refs    []xds.Ref // the endpoint assignment
	secrets []string  // names of SDS secrets, each once
	unseen  bool      // Envoy also waits for something that the control plane cannot observe
}

// encode encodes a cluster as a resource with its references.
func encode(name string, c *clusterv3.Cluster, n references) (*xds.Resource, error) {
	r, err := xds.Encode(xds.Cluster, name, c, n.refs...)
	if err == nil {
		r.Secrets, r.WarmsUnseen = n.secrets, n.unseen
	}
	return r, err
}

// referencesOf returns the references of a cluster whose endpoints come over ADS. Other clusters warm without the
// control plane, so the result is empty for them.
func referencesOf(c *clusterv3.Cluster) references {
	if c.GetType() != clusterv3.Cluster_EDS || c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil {
		return references{}
	}
	name := c.GetEdsClusterConfig().GetServiceName()
	if name == "" {
		name = c.Name
	}
	n := references{refs: []xds.Ref{{Type: xds.Endpoint, Name: name}}, unseen: len(c.GetHealthChecks()) > 0}
	n.addSocket(c.GetTransportSocket())
	for _, m := range c.GetTransportSocketMatches() {
		n.addSocket(m.GetTransportSocket())
	}
	return n
}

// tlsURL is a part of the type URL of every TLS context.
var tlsURL = []byte("envoy.extensions.transport_sockets.tls.")

// addSocket adds the secrets of a transport socket.
func (n *references) addSocket(s *corev3.TransportSocket) {
	config := s.GetTypedConfig()
	if config == nil {
		return
	}
	if tls := (&tlsv3.UpstreamTlsContext{}); config.MessageIs(tls) {
		if config.UnmarshalTo(tls) != nil {
			n.unseen = true // Envoy refuses a socket that does not decode
			return
		}
		common := tls.GetCommonTlsContext()
		for _, s := range common.GetTlsCertificateSdsSecretConfigs() {
			n.addSecret(s)
		}
		n.addSecret(common.GetValidationContextSdsSecretConfig())
		n.addSecret(common.GetCombinedValidationContext().GetValidationContextSdsSecretConfig())
		return
	}
	if wrap := (&proxyprotocolv3.ProxyProtocolUpstreamTransport{}); config.MessageIs(wrap) && config.UnmarshalTo(wrap) == nil {
		n.addSocket(wrap.GetTransportSocket())
		return
	}
	n.unseen = n.unseen || bytes.Contains(config.GetValue(), tlsURL) // an EnvoyFilter added another socket that wraps TLS
}

// addSecret adds the name of a secret.
func (n *references) addSecret(s *tlsv3.SdsSecretConfig) {
	if name := s.GetName(); name != "" && !slices.Contains(n.secrets, name) {
		n.secrets = append(n.secrets, name)
	}
}
