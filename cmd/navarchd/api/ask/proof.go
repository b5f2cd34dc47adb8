package ask

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Proof decides whether a peer's certificate proves that the peer is a replica of this control plane. Its functions
// must be safe for concurrent use.
type Proof struct {
	// Own returns this process's certificate, with Leaf set. A peer with the same key is a replica. The error is the
	// reason why there is no certificate. Without a certificate no peer is accepted as a replica.
	Own func() (*tls.Certificate, error)
	// Roots returns the roots of the mesh's own CA. A peer with a certificate of these roots is a replica if the
	// certificate has Name and one of Identities. If Roots is nil, only the key of Own counts as proof.
	Roots func() []*x509.Certificate
	// Name is the DNS name of the control plane's processes.
	Name string
	// Identities are the SPIFFE IDs of the control plane's processes.
	Identities []spiffeid.ID
	// Revoked reports whether an identity is revoked; nil: no identity is revoked. It does not apply to peers with the
	// key of Own.
	Revoked func(spiffeid.ID) bool
}

// errNotReplica is the error for a certificate that is no proof of a replica.
var errNotReplica = errors.New("the certificate does not prove that its holder is a replica: it has neither the key of this replica's" +
	" certificate, nor a name and an identity of the control plane from the mesh's own CA")

// is verifies by the presented certificates, leaf first, that a peer is a replica. The handshake has verified that the
// peer has the leaf's private key. Errors: no certificate is presented, Own fails, the leaf is no proof, or its
// identity is revoked.
func (p Proof) is(presented []*x509.Certificate, usage x509.ExtKeyUsage) error {
	if len(presented) == 0 {
		return errors.New("the peer presented no certificate")
	}
	leaf := presented[0]
	own, err := p.Own()
	if err != nil {
		return err
	}
	if sameKey(leaf, own) {
		return nil
	}
	if p.Roots == nil {
		return errNotReplica
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range p.Roots() {
		roots.AddCert(root)
	}
	for _, c := range presented[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: p.Name,
		KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return fmt.Errorf("%w: %w", errNotReplica, err)
	}
	if len(leaf.URIs) != 1 {
		return errNotReplica
	}
	id, err := spiffeid.FromURI(leaf.URIs[0])
	switch {
	case err != nil || !slices.Contains(p.Identities, id):
		return errNotReplica
	case p.Revoked != nil && p.Revoked(id):
		return fmt.Errorf("%s is revoked", id)
	}
	return nil
}

// sameKey reports whether the certificates leaf and own have the same public key. A nil own yields false.
func sameKey(leaf *x509.Certificate, own *tls.Certificate) bool {
	if own == nil || own.Leaf == nil {
		return false
	}
	key, is := own.Leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return is && key.Equal(leaf.PublicKey)
}

// client returns the TLS configuration for a connection to another replica. The error is that of Own.
func (p Proof) client() (*tls.Config, error) {
	own, err := p.Own()
	if err != nil {
		return nil, fmt.Errorf("this replica has no certificate to show: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own}, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, // VerifyConnection verifies more than a name
		VerifyConnection: func(s tls.ConnectionState) error {
			return p.is(s.PeerCertificates, x509.ExtKeyUsageServerAuth)
		}}, nil
}

// caller returns nil if the peer of a call has proved that it is a replica. Otherwise the error is the reason.
func (p Proof) caller(ctx context.Context) error {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return errors.New("the call has no peer")
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return errors.New("the connection has no verified client certificate")
	}
	return p.is(info.State.PeerCertificates, x509.ExtKeyUsageClientAuth)
}
