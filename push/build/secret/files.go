package secret

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
)

// Files is the input of a Secret whose content Envoy reads from files of the proxy: a certificate chain with its key,
// or certificates of CAs with their revocation lists. If a file is missing or is not PEM, Envoy refuses only the
// Secret. If the listener named the files itself, such a file would make Envoy refuse the listener. All fields except
// Name are paths. Exactly one of Certificate and Authorities is set.
type Files struct {
	Name                 string
	Certificate, Key     string
	Authorities, Revoked string // Revoked may be empty
}

// Build encodes the paths of the files. It fails only if a string is not valid UTF-8.
func (s Files) Build() (*xds.Resource, error) {
	out := &tlsv3.Secret{Name: s.Name}
	if s.Certificate != "" {
		pair := &tlsv3.TlsCertificate{CertificateChain: file(s.Certificate), PrivateKey: file(s.Key)}
		out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: pair}
	} else {
		v := &tlsv3.CertificateValidationContext{TrustedCa: file(s.Authorities)}
		if s.Revoked != "" {
			v.Crl = file(s.Revoked)
		}
		out.Type = &tlsv3.Secret_ValidationContext{ValidationContext: v}
	}
	return xds.Encode(xds.Secret, s.Name, out)
}

// file returns a data source that Envoy reads from a file.
func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}
