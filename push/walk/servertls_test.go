package walk

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
)

// A gateway that lacks all certificates of a chain, or the authorities for its clients, resets the connection. One of
// several certificates is enough. A certificate that has ended is a doubt.
// Promise: why.md#certificates
func TestGatewayLacksCertificates(t *testing.T) {
	now := time.Now()
	public := newIssuer(t, now)
	pair := func(name string, at time.Time) *tlsv3.Secret {
		s := public.holds("https://"+name, at, public).Secret(xds.SDSDefault)
		s.Name = "kubernetes://" + name
		return s
	}
	ads := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	for _, c := range []struct {
		names, trust string
		confidence   Confidence
		fails        string // the handshake fails for this reason; empty: it does not fail
		lacks        []string
		doubt        string
	}{
		{"good", "", Certain, "", nil, ""},
		{"ended", "", Likely, "", nil, "certificate kubernetes://ended ended "},
		{"gone", "", Certain, "no Secret gone", []string{"kubernetes://gone"}, ""},
		{"gone good", "", Likely, "", nil, "the proxy lacks kubernetes://gone"},
		{"gone lost", "", Certain, "no Secret gone; no Secret lost", []string{"kubernetes://gone", "kubernetes://lost"}, ""},
		{"removed", "", Likely, "no Secret removed", []string{"kubernetes://removed"}, "an earlier version of kubernetes://removed"},
		{"good", "gone-ca", Certain, "no Secret gone-ca", []string{"kubernetes://gone-ca"}, ""},
		{"good", "unknown-ca", Certain, "", nil, ""},
		{"unknown", "", Certain, "", nil, ""},
		{"held", "", Certain, "", nil, ""},
		{"sds://x", "", Certain, "sds://x is for an SDS server outside", []string{"sds://x"}, ""},
	} {
		config := &tlsv3.CommonTlsContext{}
		of := func(name string) *tlsv3.SdsSecretConfig {
			if !strings.Contains(name, "://") {
				name = "kubernetes://" + name
			}
			return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: ads}
		}
		for _, name := range strings.Fields(c.names) {
			config.TlsCertificateSdsSecretConfigs = append(config.TlsCertificateSdsSecretConfigs, of(name))
		}
		if c.trust != "" {
			config.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.
				CommonTlsContext_CombinedCertificateValidationContext{ValidationContextSdsSecretConfig: of(c.trust)}}
		}
		socket, err := anypb.New(&tlsv3.DownstreamTlsContext{CommonTlsContext: config, RequireClientCertificate: wrapperspb.Bool(false)})
		if err != nil {
			t.Fatal(err)
		}
		held := holding(pair("good", now), pair("ended", now.Add(-2*time.Hour)), pair("held", now))
		held.Add(&listenerv3.Listener{Name: "l",
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "0.0.0.0",
				PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8443}}}},
			FilterChains: []*listenerv3.FilterChain{{TransportSocket: &corev3.TransportSocket{Name: "tls",
				ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: socket}}}}})
		for _, name := range []string{"gone", "lost", "gone-ca", "held"} { // the newest version of held is withheld
			held.Withhold("kubernetes://"+name, "no Secret "+name)
		}
		held.WithholdNewest("kubernetes://removed", "no Secret removed")
		r := Walk(held, Inbound, Request{Scheme: "https", Name: "x", Address: "10.0.0.1", Port: 8443, Time: now, Headers: map[string]string{}})
		last := r.Steps[len(r.Steps)-1].Text
		fails := strings.HasPrefix(last, "the handshake fails: "+c.fails)
		if fails != (c.fails != "") || r.Confidence != c.confidence || !slices.Equal(r.Lacks, c.lacks) ||
			!strings.Contains(strings.Join(r.Doubts, ";"), c.doubt) {
			t.Errorf("%s %s: %q, %v, lacks %q, doubts %q", c.names, c.trust, last, r.Confidence, r.Lacks, r.Doubts)
		}
	}
}
