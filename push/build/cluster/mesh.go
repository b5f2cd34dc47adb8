package cluster

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/store/model"
)

// These are the ALPN protocols that a client of the mesh offers, as in Istio. The server's proxy recognises the
// mesh's mTLS by these protocols.
var (
	meshALPN   = []string{"istio-peer-exchange", "istio"}
	meshALPNH2 = []string{"istio-peer-exchange", "istio", "h2"}
)

// matchesByTLSMode returns transport sockets that are selected by the metadata of endpoints: the mesh's mTLS for
// endpoints with tlsMode istio, and plain text for others.
func (s Outbound) matchesByTLSMode(d *builder) []*clusterv3.Cluster_TransportSocketMatch {
	return []*clusterv3.Cluster_TransportSocketMatch{{
		Name:            "tlsMode-istio",
		Match:           &structpb.Struct{Fields: map[string]*structpb.Value{"tlsMode": structpb.NewStringValue("istio")}},
		TransportSocket: socket("envoy.transport_sockets.tls", s.meshTLS(d, nil)),
	}, {
		Name:            "tlsMode-disabled",
		Match:           &structpb.Struct{},
		TransportSocket: socket("envoy.transport_sockets.raw_buffer", &rawbufferv3.RawBuffer{}),
	}}
}

// meshTLS returns the TLS context of the mesh's mTLS. The context accepts the identities of the service (peers). If
// these identities are unknown, the context accepts every identity of the mesh's trust domains. rule has the TLS
// settings of a DestinationRule; it may be nil.
func (s Outbound) meshTLS(d *builder, rule *networkingv1.ClientTLSSettings) *tlsv3.UpstreamTlsContext {
	alpn := meshALPN
	if d.http2() != nil {
		alpn = meshALPNH2
	}
	names, known := s.peers(rule.GetSubjectAltNames())
	peers := &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: identity.Members(identity.TrustDomains(s.Mesh.Spec))}
	if known {
		peers = &tlsv3.CertificateValidationContext{}
		identity.Expect(peers, names)
	}
	sni := rule.GetSni()
	if sni == "" {
		sni = strings.ReplaceAll(d.Name, "|", "_.")
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: identity.Context(alpn, peers), Sni: sni}
}

// peers returns the identities that servers of the service may have. These are the stated identities. Without stated
// identities, they are those of Accounts and of a ServiceEntry's subjectAltNames, each in all trust domains. known is
// false if there are no such identities. Otherwise peers removes the denied identities. If it removes all of them, the
// result is an identity that the CA never issues.
func (s Outbound) peers(stated []string) (uris []string, known bool) {
	domains := identity.TrustDomains(s.Mesh.Spec)
	uris = slices.Clone(stated)
	if len(uris) == 0 {
		for _, domain := range domains {
			for _, account := range s.Accounts.All() {
				uris = append(uris, identity.URI(domain, account))
			}
		}
		if s.Service.Key.Kind == model.KindServiceEntry {
			for _, name := range s.Service.Spec.SubjectAltNames {
				uris = append(uris, identity.Aliases(domains, name)...)
			}
		}
	}
	if len(uris) == 0 {
		return nil, false
	}
	uris = slices.DeleteFunc(uris, func(uri string) bool { return s.denies(domains, uri) })
	if len(uris) == 0 { // without names, every identity would be accepted
		uris = []string{"spiffe://" + domains[0] + "/ns//sa/"}
	}
	return uris, true
}

// denies reports whether an identity is denied. Denied contains identities of the mesh's trust domain, domains[0]. The
// same path in an alias of the domain is denied too.
func (s Outbound) denies(domains []string, uri string) bool {
	for _, denied := range s.Denied.All() {
		path, own := strings.CutPrefix(denied, "spiffe://"+domains[0]+"/")
		if denied == uri || own && slices.ContainsFunc(domains, func(alias string) bool { return uri == "spiffe://"+alias+"/"+path }) {
			return true
		}
	}
	return false
}
