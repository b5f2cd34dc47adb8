package listener

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/xds"
)

// http3Reply is what HTTP/3 answers by ALPN.
var http3Reply = []string{"h3"}

// transportSocket ends the TLS of a chain; nil: bytes pass on as they come.
func (s ServerChain) transportSocket() *corev3.TransportSocket {
	if !s.TLS.terminates() {
		return nil
	}
	alpn := httpReply
	switch {
	case s.QUIC:
		alpn = http3Reply
	case s.TLS.Mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL && s.HTTP.Route == "":
		alpn = tcpReply
	}
	name, config := tlsSocket, proto.Message(s.serverTLS(s.TLS, alpn))
	if s.QUIC {
		name, config = "envoy.transport_sockets.quic", &quicv3.QuicDownstreamTransport{DownstreamTlsContext: config.(*tlsv3.DownstreamTlsContext)}
	}
	return &corev3.TransportSocket{Name: name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xds.Any(config)}}
}

// Fault reports why TLS cannot be ended as it is stated: by this proxy, or at all; nil: it can. The error names the
// field of the server.
func (s ServerChain) Fault() error {
	tls := s.TLS
	if !tls.terminates() {
		return nil
	}
	ofAgent := func(secret Secret) bool { return secret.Cluster == xds.SDSCluster }
	agents := ofAgent(tls.Trust) || slices.ContainsFunc(tls.Secrets.All(), ofAgent)
	mesh := tls.Mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL
	_, least := networkingv1.ServerTLSSettings_TLSProtocol_name[int32(tls.Least)]
	_, most := networkingv1.ServerTLSSettings_TLSProtocol_name[int32(tls.Most)]
	switch {
	case (mesh || agents) && !s.Caps.Has(xds.CapIdentity):
		return errors.New("tls.mode: the proxy has no certificate of the mesh; connections are closed")
	case !least || !most:
		return fmt.Errorf("tls.minProtocolVersion: versions %d and %d are not known; connections are closed", tls.Least, tls.Most)
	case tls.Most != networkingv1.ServerTLSSettings_TLS_AUTO && tls.Least > tls.Most:
		return fmt.Errorf("tls.minProtocolVersion: %v is above maxProtocolVersion %v; connections are closed", tls.Least, tls.Most)
	case mesh:
		return nil
	case tls.Secrets.Len() == 0 && (tls.Certificate == "" || tls.Key == ""):
		return errors.New("tls.serverCertificate: a certificate or its key is missing; connections are closed")
	case tls.requestsClientCertificate() && tls.Trust == Secret{} && tls.Authorities == "":
		return fmt.Errorf("tls.caCertificates: mode %v needs the authorities of clients' certificates; connections are closed", tls.Mode)
	}
	return nil
}

// certificates are those of the server by SDS; nil: Envoy reads files.
func (c Common) certificates(s ServerTLS) (own []*tlsv3.SdsSecretConfig) {
	for _, secret := range s.Secrets.All() {
		own = append(own, secret.draw())
	}
	if len(own) == 0 && c.Caps.Has(xds.CapFileSecrets) {
		for _, pair := range s.files() {
			own = append(own, identity.OfAgent(xds.FileCertificate(pair[0], pair[1])))
		}
	}
	return own
}

// files are the certificates that are files, with their keys.
func (s ServerTLS) files() [][2]string {
	all := [][2]string{{s.Certificate, s.Key}}
	if s.Certificate2 != "" {
		all = append(all, [2]string{s.Certificate2, s.Key2})
	}
	return all
}

// draw is the source of a secret.
func (s Secret) draw() *tlsv3.SdsSecretConfig {
	if s.Cluster == "" {
		return identity.OverADS(s.Name)
	}
	return identity.Of(s.Name, s.Cluster)
}

// clients returns the names, pins and trust by which certificates of clients are verified, beside their authorities.
func (s ServerTLS) clients() *tlsv3.CertificateValidationContext {
	v := &tlsv3.CertificateValidationContext{}
	identity.Expect(v, s.Clients.All())
	if s.Unverified {
		v.TrustChainVerification = tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED
	}
	v.VerifyCertificateSpki = pins(s.Keys.All(), base64.StdEncoding.DecodeString)
	v.VerifyCertificateHash = pins(s.Hashes.All(), func(pin string) ([]byte, error) {
		return hex.DecodeString(strings.ReplaceAll(pin, ":", ""))
	})
	if s.Keys.Len()+s.Hashes.Len() > 0 && len(v.VerifyCertificateSpki)+len(v.VerifyCertificateHash) == 0 {
		v.VerifyCertificateHash = []string{noCertificate}
	}
	return v
}

// pinned is the length of a SHA-256, bytes.
const pinned = 32

// noCertificate is a pin that no certificate matches, where all pins that are stated are malformed: without a pin Envoy
// would accept any certificate.
var noCertificate = strings.Repeat("00", pinned)

// pins are those of a list that are SHA-256 sums. Envoy refuses a listener with others.
func pins(stated []string, decode func(string) ([]byte, error)) (valid []string) {
	for _, pin := range stated {
		if sum, err := decode(pin); err == nil && len(sum) == pinned {
			valid = append(valid, pin)
		}
	}
	return valid
}
