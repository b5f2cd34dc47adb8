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

// http3Reply lists the ALPN protocols of HTTP/3 servers.
var http3Reply = []string{"h3"}

// transportSocket returns the transport socket that terminates the chain's TLS, or nil if the chain terminates no
// TLS.
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

// Fault returns an error if the proxy cannot terminate TLS as the Spec states. It returns nil if the proxy can
// terminate the TLS, or if the chain terminates no TLS. The reasons, in the order of precedence:
//
//   - The mode is ISTIO_MUTUAL, or a secret comes from the proxy's agent, but the proxy has no mesh certificate.
//   - Least or Most is an unknown TLS version, or Least is above Most.
//   - TLS.Foreign is set, and Envoy itself would read the files. Envoy refuses a listener if such a file is missing or
//     invalid.
//   - Secrets are empty, and Certificate or Key is empty.
//   - The mode requests client certificates, and both Trust and Authorities are empty.
//
// The last three reasons do not apply to ISTIO_MUTUAL. The error begins with the field of the Gateway's server, and
// states that connections are closed.
func (s ServerChain) Fault() error {
	tls := s.TLS
	if !tls.terminates() {
		return nil
	}
	fromAgent := func(secret Secret) bool { return secret.Cluster == xds.SDSCluster }
	needsAgent := fromAgent(tls.Trust) || slices.ContainsFunc(tls.Secrets.All(), fromAgent)
	mesh := tls.Mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL
	_, least := networkingv1.ServerTLSSettings_TLSProtocol_name[int32(tls.Least)]
	_, most := networkingv1.ServerTLSSettings_TLSProtocol_name[int32(tls.Most)]
	switch {
	case (mesh || needsAgent) && !s.Caps.Has(xds.CapIdentity):
		return errors.New("tls.mode: the proxy has no certificate of the mesh; connections are closed")
	case !least || !most:
		return fmt.Errorf("tls.minProtocolVersion: versions %d and %d are not known; connections are closed", tls.Least, tls.Most)
	case tls.Most != networkingv1.ServerTLSSettings_TLS_AUTO && tls.Least > tls.Most:
		return fmt.Errorf("tls.minProtocolVersion: %v is above maxProtocolVersion %v; connections are closed", tls.Least, tls.Most)
	case mesh:
		return nil
	case tls.Foreign != "" && s.readsFiles(tls):
		return errors.New("tls: the gateway's agent does not serve these files, and Envoy reads files for Gateways of the " +
			"gateway's own namespace alone; connections are closed")
	case tls.Secrets.Len() == 0 && (tls.Certificate == "" || tls.Key == ""):
		return errors.New("tls.serverCertificate: a certificate or its key is missing; connections are closed")
	case tls.requestsClientCertificate() && tls.Trust == Secret{} && tls.Authorities == "":
		return fmt.Errorf("tls.caCertificates: mode %v needs the authorities of clients' certificates; connections are closed", tls.Mode)
	}
	return nil
}

// certificates returns the SDS references of the server's certificates. The result is nil if Envoy reads the
// certificates from files.
func (c Common) certificates(s ServerTLS) (own []*tlsv3.SdsSecretConfig) {
	for _, secret := range s.Secrets.All() {
		own = append(own, secret.sdsConfig())
	}
	if len(own) == 0 && c.Caps.Has(xds.CapFileSecrets) {
		for _, pair := range s.files() {
			own = append(own, c.fileSecret(s, xds.FileCertificate(pair[0], pair[1])))
		}
	}
	return own
}

// fileSecret returns the reference to a secret that the agent reads from files.
func (c Common) fileSecret(s ServerTLS, name string) *tlsv3.SdsSecretConfig {
	if c.Caps.Has(xds.CapFileOwners) {
		name = xds.OwnedFile(name, s.Foreign)
	}
	return identity.OfAgent(name)
}

// files returns the pairs of certificate file and key file.
func (s ServerTLS) files() [][2]string {
	all := [][2]string{{s.Certificate, s.Key}}
	if s.Certificate2 != "" {
		all = append(all, [2]string{s.Certificate2, s.Key2})
	}
	return all
}

// sdsConfig returns the reference to a secret.
func (s Secret) sdsConfig() *tlsv3.SdsSecretConfig {
	if s.Cluster == "" {
		return identity.OverADS(s.Name)
	}
	return identity.Of(s.Name, s.Cluster)
}

// clients returns the settings for the verification of clients' certificates, without the authorities. The settings
// are the accepted names, the pins, and whether the chain of trust is verified.
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

// pinSize is the length of a pin, a SHA-256 sum, in bytes.
const pinSize = 32

// noCertificate is a pin that no certificate matches. It is used if all stated pins are malformed. Without a pin Envoy
// would accept certificates that the pins were meant to exclude.
var noCertificate = strings.Repeat("00", pinSize)

// pins returns the stated pins that are SHA-256 sums. Envoy would refuse a listener with a pin of another length.
func pins(stated []string, decode func(string) ([]byte, error)) (valid []string) {
	for _, pin := range stated {
		if sum, err := decode(pin); err == nil && len(sum) == pinSize {
			valid = append(valid, pin)
		}
	}
	return valid
}
