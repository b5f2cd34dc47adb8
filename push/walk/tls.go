package walk

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/xds"
)

// handshake applies the transport socket of a filter chain, and reports whether the connection continues. A filter
// chain with the mesh's certificate refuses a client without an Identity, or with an Identity that the chain does not
// accept.
func (w *walker) handshake(chain *listenerv3.FilterChain) bool {
	socket := chain.GetTransportSocket()
	if socket == nil {
		return true
	}
	context := &tlsv3.DownstreamTlsContext{}
	if err := socket.GetTypedConfig().UnmarshalTo(context); err != nil {
		w.step("%v", err)
		return false
	}
	if own := context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs(); len(own) == 0 || own[0].GetName() != xds.SDSDefault {
		return w.serverTLS(context)
	}
	w.step("asks for a certificate")
	w.result.MeshTLS = true
	validation := context.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext()
	if w.Identity != "" && (len(sansOf(validation)) == 0 || slices.ContainsFunc(sansOf(validation), w.hasName)) {
		w.peer, w.ended = w.Identity, true
		return true
	}
	w.step("refuses the certificate")
	return false
}

// hasName reports whether a string matcher accepts the client's Identity.
func (w *walker) hasName(m *matcherv3.StringMatcher) bool { return stringMatches(m, w.Identity) }

// sansOf returns the matchers for the names in a peer's certificate. If the result is empty, any name is accepted.
func sansOf(v *tlsv3.CertificateValidationContext) (all []*matcherv3.StringMatcher) {
	for _, m := range v.GetMatchTypedSubjectAltNames() {
		all = append(all, m.GetMatcher())
	}
	//lint:ignore SA1019 what Istio's proxies of all versions have
	return append(all, v.GetMatchSubjectAltNames()...)
}

// Upstream is the transport security that a proxy uses towards the endpoints of a cluster.
type Upstream struct {
	// Mode is plain, tls, or mtls (with the mesh's certificate). If endpoints differ, Mode has several of these words,
	// sorted and joined by " or ". In this case, the other fields describe one of the endpoints with TLS.
	Mode string
	// SNI is the server name that the proxy sends. Root is the name of the secret with the accepted certificate
	// authorities. Each is "" if the configuration does not state it.
	SNI, Root string
	// Names lists the names that a server's certificate may have. If it is nil, any name is accepted. A name may be a
	// pattern, such as "prefix*", "*suffix" or "regex EXPRESSION".
	Names []string
}

// upstream returns the transport security of a cluster. The first result combines all endpoints. The second result has
// the transport security of each endpoint, by the endpoint's address.
func upstream(c *clusterv3.Cluster, cla *endpointv3.ClusterLoadAssignment) (Upstream, map[string]Upstream) {
	of := map[string]Upstream{}
	var modes []string
	all := upstreamOf(c.GetTransportSocket())
	for _, l := range cla.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			one := upstreamOf(c.GetTransportSocket())
			for _, m := range c.GetTransportSocketMatches() {
				if fulfils(e.GetMetadata(), m) {
					one = upstreamOf(m.GetTransportSocket())
					break
				}
			}
			of[addressOf(e)] = one
			if !slices.Contains(modes, one.Mode) {
				modes = append(modes, one.Mode)
			}
			if one.Mode != "plain" {
				all = one
			}
		}
	}
	if len(modes) > 0 {
		slices.Sort(modes)
		all.Mode = strings.Join(modes, " or ")
	}
	return all, of
}

// fulfils reports whether an endpoint's metadata has all values of a transport socket match.
func fulfils(of *corev3.Metadata, m *clusterv3.Cluster_TransportSocketMatch) bool {
	fields := of.GetFilterMetadata()["envoy.transport_socket_match"].GetFields()
	for name, want := range m.GetMatch().GetFields() {
		if fields[name].GetStringValue() != want.GetStringValue() {
			return false
		}
	}
	return true
}

// upstreamOf returns the transport security of a transport socket. If the PROXY protocol wraps another socket, that
// socket decides.
func upstreamOf(socket *corev3.TransportSocket) Upstream {
	wrapped := &proxyprotocolv3.ProxyProtocolUpstreamTransport{}
	if config := socket.GetTypedConfig(); config.MessageIs(wrapped) && config.UnmarshalTo(wrapped) == nil {
		socket = wrapped.GetTransportSocket()
	}
	context := &tlsv3.UpstreamTlsContext{}
	if config := socket.GetTypedConfig(); !config.MessageIs(context) || config.UnmarshalTo(context) != nil {
		return Upstream{Mode: "plain"}
	}
	common := context.GetCommonTlsContext()
	combined := common.GetCombinedValidationContext()
	u := Upstream{Mode: "tls", SNI: context.GetSni(), Root: combined.GetValidationContextSdsSecretConfig().GetName()}
	if own := common.GetTlsCertificateSdsSecretConfigs(); len(own) > 0 && own[0].GetName() == xds.SDSDefault {
		u.Mode = "mtls"
	}
	validation := combined.GetDefaultValidationContext()
	if validation == nil {
		validation = common.GetValidationContext()
	}
	for _, m := range sansOf(validation) {
		u.Names = append(u.Names, text(m))
	}
	return u
}

// text returns a string matcher as a name or a pattern, in the notation of Upstream.Names.
func text(m *matcherv3.StringMatcher) string {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return p.Exact
	case *matcherv3.StringMatcher_Prefix:
		return p.Prefix + "*"
	case *matcherv3.StringMatcher_Suffix:
		return "*" + p.Suffix
	case *matcherv3.StringMatcher_Contains:
		return "*" + p.Contains + "*"
	case *matcherv3.StringMatcher_SafeRegex:
		return "regex " + p.SafeRegex.GetRegex()
	}
	return "?"
}
