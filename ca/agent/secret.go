package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Names of the secrets that Istio's proxies request, and their resource type.
const (
	certificateName = "default"
	trustName       = "ROOTCA"
	secretType      = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// secret is one SDS resource. Immutable.
type secret struct {
	name    string
	version string // hash of the content; for a certificate, hash of the chain only
	body    *anypb.Any
	roots   []string // fingerprints of root certificates to report once Envoy acknowledges the secret; nil: no report
}

func newSecret(s *tlsv3.Secret, roots []string, versionOf ...[]byte) *secret {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		panic("agent: a secret of bytes does not encode: " + err.Error())
	}
	h := sha256.New()
	for _, b := range versionOf {
		h.Write(b)
	}
	return &secret{name: s.Name, version: hex.EncodeToString(h.Sum(nil)[:16]), body: &anypb.Any{TypeUrl: secretType, Value: raw}, roots: roots}
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

func certificateSecret(name string, chain []byte, key keyPEM) *secret {
	return newSecret(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(chain), PrivateKey: inline(key),
	}}}, nil, chain)
}

func trustSecret(bundle, crl []byte, roots []string) *secret {
	v := &tlsv3.CertificateValidationContext{TrustedCa: inline(bundle)}
	if len(crl) > 0 {
		// Without OnlyVerifyLeafCertCrl, Envoy refuses a peer if the revocation list of any issuer in its chain is
		// missing or expired.
		v.Crl, v.OnlyVerifyLeafCertCrl = inline(crl), true
	}
	return newSecret(&tlsv3.Secret{Name: trustName, Type: &tlsv3.Secret_ValidationContext{ValidationContext: v}},
		roots, bundle, []byte{0}, crl, []byte(strings.Join(roots, " ")))
}
