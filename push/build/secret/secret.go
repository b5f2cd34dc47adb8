// Package secret builds Envoy's Secrets: a certificate with its private key (Pair), the CAs and the CRL that verify
// peers (Trust), or the paths of files that contain one of these two (Files).
//
// Owns: nothing.
// Reads: Pair, Trust and Files.
// Never: reads the snapshot of all records; reveals a part of a private key in a version or an error.
package secret

import (
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Pair is the input of a Secret with a certificate chain and its private key.
type Pair struct {
	Name   string        // resource name that the proxy requested
	Secret *model.Secret // not nil
	// Key is the decrypted private key of the Secret; nil: the key is not available. Secret itself contains only an
	// encrypted key. Package fmt prints Key as [sealed].
	Key *model.PrivateKey
}

// Build encodes the certificate chain, the private key and the OCSP staple. The version is a hash of the name, the
// chain, the staple and the private key's MAC. The version is therefore the same on all replicas, and does not change
// when the same private key is encrypted again. The error is a model.Problem if the Secret has no certificate chain or
// Key is nil. Build also fails if Name is not valid UTF-8. The resource contains the private key in plain text.
func (s Pair) Build() (*xds.Resource, error) {
	body := s.Secret.Spec
	if len(body.GetChain()) == 0 || s.Key == nil {
		return nil, model.Fault(s.Secret.Key, problem.Required, "data", errors.New("has no certificate with a private key"))
	}
	pair := &tlsv3.TlsCertificate{CertificateChain: inline(body.GetChain()), PrivateKey: inline(*s.Key)}
	if len(body.GetOcsp()) > 0 {
		pair.OcspStaple = inline(body.GetOcsp())
	}
	version := xds.VersionOf([]byte("navarch.io/secret/1"), []byte(s.Name), body.GetChain(), body.GetOcsp(), body.GetMac())
	secret := &tlsv3.Secret{Name: s.Name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: pair}}
	return xds.EncodeAs(xds.Secret, s.Name, version, secret)
}

// Trust is the input of the CAs that verify peers, with their CRL.
type Trust struct {
	Name   string        // resource name that the proxy requested
	Secret *model.Secret // not nil
}

// Build encodes the CAs and the CRL. The error is a model.Problem if the Secret has no CAs. Build also fails if Name is
// not valid UTF-8.
func (s Trust) Build() (*xds.Resource, error) {
	body := s.Secret.Spec
	if len(body.GetTrust()) == 0 {
		return nil, model.Fault(s.Secret.Key, problem.Required, "data", errors.New("has no certificates of authorities"))
	}
	v := &tlsv3.CertificateValidationContext{TrustedCa: inline(body.GetTrust())}
	if len(body.GetCrl()) > 0 {
		v.Crl = inline(body.GetCrl())
	}
	return xds.Encode(xds.Secret, s.Name, &tlsv3.Secret{Name: s.Name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: v}})
}

// inline returns a data source with these bytes.
func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
