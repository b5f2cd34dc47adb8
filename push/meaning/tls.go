package meaning

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/xds"
)

// TLS modes. Names in capitals are modes of DestinationRules and Gateways.
const (
	plainText   = "plain text"
	meshMutual  = "ISTIO_MUTUAL"
	automatic   = "automatic mTLS" // mTLS only to endpoints that accept mTLS
	mutual      = "MUTUAL"
	simple      = "SIMPLE"
	proxyPrefix = "PROXY protocol over "
)

// tls is the model of the TLS settings of a client or a server.
type tls struct {
	mode         string
	sni          string   // of a client
	alpn         string   // of a client, from the metadata of its cluster
	names        string   // names that the peer's certificate may have
	certificates string   // own certificates
	authorities  string   // authorities that sign the certificates of peers
	secrets      []string // all secrets that Envoy requests by name
	socket       string   // name of the transport socket
	// rest contains the fields outside of the model.
	rest proto.Message
}

// encrypted reports whether all connections are encrypted.
func (t tls) encrypted() bool {
	mode := strings.TrimPrefix(t.mode, proxyPrefix)
	return mode != plainText && mode != automatic
}

// compare adds the differences between two models to c. If the modes differ, it adds only the modes, because other
// differences follow from the modes.
func (t tls) compare(c *change, to tls) {
	if t.mode != to.mode {
		c.compare("TLS", t.mode, to.mode)
		return
	}
	c.compare("SNI", t.sni, to.sni)
	c.compare("names of the peer", t.names, to.names)
	c.compare("certificate", t.certificates, to.certificates)
	c.compare("authorities", t.authorities, to.authorities)
	c.compare("name of the transport socket", t.socket, to.socket)
	c.compare("ALPN as the rule states it", t.alpn, to.alpn)
	if t.rest != nil && to.rest != nil {
		c.others(t.rest, to.rest)
	}
}

// clusterTLS returns the TLS settings of a cluster, and clears the transport sockets in the cluster.
func clusterTLS(c *clusterv3.Cluster) tls {
	matches := c.GetTransportSocketMatches()
	t := socketTLS(c.GetTransportSocket())
	if len(matches) > 0 {
		rest := &clusterv3.Cluster{TransportSocket: c.GetTransportSocket()}
		for _, m := range matches {
			one := socketTLS(m.GetTransportSocket())
			if one.encrypted() && !t.encrypted() {
				one.rest = nil
				t = one
			}
			rest.TransportSocketMatches = append(rest.TransportSocketMatches, m)
		}
		t.mode = automatic
		t.rest = withoutNames(rest)
	}
	c.TransportSocket, c.TransportSocketMatches = nil, nil
	return t
}

// withoutNames returns a cluster with only the transport sockets of c. In the first encrypted socket among the matches,
// it keeps only the fields outside of the model (the type tls).
func withoutNames(c *clusterv3.Cluster) *clusterv3.Cluster {
	out, done := &clusterv3.Cluster{TransportSocket: c.GetTransportSocket()}, false
	for _, m := range c.GetTransportSocketMatches() {
		m = proto.Clone(m).(*clusterv3.Cluster_TransportSocketMatch)
		if t := socketTLS(m.GetTransportSocket()); t.encrypted() && t.rest != nil && !done {
			done = true
			if packed, err := anypb.New(t.rest); err == nil {
				m.TransportSocket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: packed}
			}
		}
		out.TransportSocketMatches = append(out.TransportSocketMatches, m)
	}
	return out
}

// socketTLS returns the TLS settings of a transport socket. Without a socket, the mode is plainText.
func socketTLS(socket *corev3.TransportSocket) tls {
	if socket == nil {
		return tls{mode: plainText}
	}
	t := configTLS(socket)
	t.socket = socket.GetName()
	return t
}

// configTLS returns the TLS settings in the configuration of a transport socket.
func configTLS(socket *corev3.TransportSocket) tls {
	m, err := socket.GetTypedConfig().UnmarshalNew()
	if err != nil {
		return tls{mode: socket.GetName(), rest: socket}
	}
	switch m := m.(type) {
	case *rawbufferv3.RawBuffer:
		return tls{mode: plainText, rest: m}
	case *tlsv3.UpstreamTlsContext:
		t := commonTLS(m.GetCommonTlsContext())
		t.sni, m.Sni, t.rest = m.GetSni(), "", m
		return t
	case *tlsv3.DownstreamTlsContext:
		return downstreamTLS(m)
	case *quicv3.QuicDownstreamTransport:
		t := downstreamTLS(m.GetDownstreamTlsContext())
		t.rest = m
		return t
	case *proxyprotocolv3.ProxyProtocolUpstreamTransport:
		t := socketTLS(m.GetTransportSocket())
		t.mode = proxyPrefix + t.mode
		if packed, err := anypb.New(orEmpty(t.rest)); err == nil && m.TransportSocket != nil {
			m.TransportSocket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: packed}
		}
		t.rest = m
		return t
	}
	return tls{mode: string(m.ProtoReflect().Descriptor().Name()), rest: m}
}

// orEmpty returns m, or an empty message if m is nil.
func orEmpty(m proto.Message) proto.Message {
	if m == nil {
		return &rawbufferv3.RawBuffer{}
	}
	return m
}

// downstreamTLS returns the TLS settings of a server. It clears the same names in m as commonTLS does.
func downstreamTLS(m *tlsv3.DownstreamTlsContext) tls {
	t := commonTLS(m.GetCommonTlsContext())
	if t.mode != meshMutual && m.GetRequireClientCertificate().GetValue() {
		t.mode = mutual
	} else if t.mode != meshMutual {
		t.mode = simple
	}
	t.rest = m
	return t
}

// commonTLS returns the settings that clients and servers have in common. It clears the names of SDS secrets in c. It
// also clears the names that the peer's certificate may have, unless there are more than five.
func commonTLS(c *tlsv3.CommonTlsContext) tls {
	t := tls{mode: simple}
	var own []string
	for _, s := range c.GetTlsCertificateSdsSecretConfigs() {
		own = append(own, s.GetName())
		t.secrets = append(t.secrets, s.GetName())
		if s.GetName() == xds.SDSDefault {
			t.mode = meshMutual
		}
		s.Name = ""
	}
	for _, f := range c.GetTlsCertificates() {
		own = append(own, f.GetCertificateChain().GetFilename())
	}
	if len(own) > 0 && t.mode != meshMutual {
		t.mode = mutual
	}
	t.certificates = list(own)
	v := c.GetValidationContext()
	if combined := c.GetCombinedValidationContext(); combined != nil {
		v = combined.GetDefaultValidationContext()
		if s := combined.GetValidationContextSdsSecretConfig(); s != nil {
			t.authorities = s.GetName()
			t.secrets = append(t.secrets, s.GetName())
			s.Name = ""
		}
	}
	if file := v.GetTrustedCa().GetFilename(); file != "" {
		t.authorities = file
	}
	var names []string
	for _, n := range v.GetMatchTypedSubjectAltNames() {
		names = append(names, strings.ToUpper(n.GetSanType().String())[:3]+" "+matcherText(n.GetMatcher()))
	}
	//lint:ignore SA1019 proxies of all versions have the field
	for _, n := range v.GetMatchSubjectAltNames() {
		names = append(names, matcherText(n))
	}
	slices.Sort(names)
	if t.names = list(names); len(names) > 5 { // the text may omit names, so rest keeps them
		return t
	}
	if v != nil {
		//lint:ignore SA1019 as above
		v.MatchTypedSubjectAltNames, v.MatchSubjectAltNames = nil, nil
	}
	return t
}

// matcherText describes a matcher of strings. A "*" stands for any text before or after the given part.
func matcherText(m *matcherv3.StringMatcher) string {
	fold := ""
	if m.GetIgnoreCase() {
		fold = " in any case"
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return p.Exact + fold
	case *matcherv3.StringMatcher_Prefix:
		return p.Prefix + "*" + fold
	case *matcherv3.StringMatcher_Suffix:
		return "*" + p.Suffix + fold
	case *matcherv3.StringMatcher_Contains:
		return "*" + p.Contains + "*" + fold
	case *matcherv3.StringMatcher_SafeRegex:
		return "regex " + p.SafeRegex.GetRegex() + fold
	}
	return brief(m)
}
