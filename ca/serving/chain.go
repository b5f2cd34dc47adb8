package serving

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Credentials returns a gRPC server's credentials for a configuration that TLS.Config or ByFiles made. The credentials
// read one TLS record at a time, to save memory. They refuse client chains that are expensive to verify.
// TLSInfo.State.VerifiedChains is empty for any other configuration. It is also empty if ByFiles made the configuration
// without client roots.
func Credentials(conf *tls.Config) credentials.TransportCredentials {
	return transport{credentials.NewTLS(conf)}
}

type transport struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials. The returned TLSInfo contains the client's verified
// chains in State.VerifiedChains.
func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	r := &records{Conn: conn}
	secure, info, err := t.TransportCredentials.ServerHandshake(r)
	if of, ok := info.(credentials.TLSInfo); ok {
		of.State.VerifiedChains = r.chains
		info = of
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials {
	return transport{t.TransportCredentials.Clone()}
}

// verifying returns a copy of conf for one connection. A handshake with the copy verifies a presented client
// certificate against conf's ClientCAs, and fails if the verification fails. The verified chains are stored in conn if
// it is a *records, and are lost otherwise.
func verifying(conf *tls.Config, conn net.Conn) *tls.Config {
	own := conf.Clone()
	own.ClientAuth = tls.RequestClientCert
	own.VerifyConnection = func(state tls.ConnectionState) error {
		chains, err := verify(state.PeerCertificates, conf.ClientCAs, time.Now())
		if r, ok := conn.(*records); ok {
			r.chains = chains
		}
		return err
	}
	return own
}

// Bounds of a client's chain. Chains in meshes have three or four certificates, each issued by the next one.
const (
	mostPresented = 6
	mostIssuers   = 8 // pairs of a certificate and a possible issuer, matched by the issuer's name
)

// verify verifies client certificates as crypto/tls does for VerifyClientCertIfGiven, but refuses chains beyond the
// bounds above. It returns no chains and no error if no certificate was presented.
//
// Without these bounds, a client without a valid certificate could present many intermediates of one name. Each
// connection could cause a hundred signature checks, the limit of crypto/x509. A hundred checks took 130 ms of a
// processor with P-521 keys and 7 ms with P-256 keys. A handshake takes 0.5 ms.
func verify(presented []*x509.Certificate, roots *x509.CertPool, now time.Time) ([][]*x509.Certificate, error) {
	if len(presented) == 0 {
		return nil, nil
	}
	if len(presented) > mostPresented {
		return nil, fmt.Errorf("the client presents %d certificates, at most %d are accepted", len(presented), mostPresented)
	}
	between, issuers := x509.NewCertPool(), 0
	for i, issuer := range presented[1:] {
		between.AddCert(issuer)
		for j, of := range presented {
			if j != i+1 && bytes.Equal(of.RawIssuer, issuer.RawSubject) {
				issuers++
			}
		}
	}
	if issuers > mostIssuers {
		return nil, fmt.Errorf("the client presents several certificates of one name: %d pairs of a certificate and a possible issuer,"+
			" at most %d are accepted", issuers, mostIssuers)
	}
	return presented[0].Verify(x509.VerifyOptions{Roots: roots,
		Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}
