package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/issue"
)

// requestTimeout bounds the request to one peer, so that a hanging peer leaves time for the others.
const requestTimeout = 5 * time.Second

// PeerIssued obtains a serving certificate for a replica that cannot sign. A peer, which is another replica that can
// sign, signs the certificate.
type PeerIssued struct {
	// Peers are the TLS addresses (host:port) of replicas with the role ca. A host name stands for all its IP
	// addresses. Peers may contain the process's own address. If there are more than 64 different pairs of IP address
	// and port, only the first 64 in sorted order are used.
	Peers []string
	// Roots verify the peer's own certificate before the token is sent, and the certificate in the peer's response. If
	// Roots is nil, the system's roots are used.
	Roots      *x509.CertPool
	ServerName string // DNS name that each peer's certificate and the requested certificate must have
	Token      string // token of the control plane's own service account
}

// PeerCertificate is a serving certificate with its private key. Peer is the IP address and port of the peer that
// signed it.
type PeerCertificate struct {
	Certificate tls.Certificate // Leaf is set
	Peer        string
}

// Request makes one P-256 key, and requests a certificate for this key from one peer after another, until a peer
// returns a valid certificate. The gRPC method is CertificateMethod. The order of the peers is random, and each request
// takes at most 5 s. The peer's Config.Names decide which names the certificate has. Request verifies that the
// certificate is for the key, chains to Roots and has ServerName.
//
// Request fails if the key or the CSR cannot be made, or if no peer returns a valid certificate. If no peer does, the
// error joins the errors of all peers and of all addresses that are invalid or do not resolve. It also joins an error
// if there are more than 64 pairs of IP address and port. If Peers is empty, the error says that no peer is known.
func (b PeerIssued) Request(ctx context.Context) (*PeerCertificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the serving key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make a CSR: %w", err)
	}
	csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	targets, errs := resolve(ctx, b.Peers)
	if len(targets)+len(errs) == 0 {
		return nil, errors.New("no peer is known")
	}
	for _, i := range mathrand.Perm(len(targets)) {
		pair, err := b.ask(ctx, targets[i], csr, key)
		if err == nil {
			return &PeerCertificate{Certificate: *pair, Peer: targets[i]}, nil
		}
		errs = append(errs, fmt.Errorf("peer %s: %w", targets[i], err))
	}
	return nil, errors.Join(errs...)
}

func (b PeerIssued) ask(ctx context.Context, target string, csr []byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	conf := &tls.Config{RootCAs: b.Roots, ServerName: b.ServerName, MinVersion: tls.VersionTLS12}
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(credentials.NewTLS(conf)),
		grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+b.Token), requestTimeout)
	defer cancel()
	request := &securityv1.IstioCertificateRequest{Csr: string(csr)}
	answer, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, request)
	if err != nil {
		return nil, err
	}
	return b.read(answer.GetCertChain(), key)
}

// read parses a peer's response. It verifies that the certificate is for the key, chains to Roots and has ServerName.
func (b PeerIssued) read(answer []string, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	if len(answer) < 2 {
		return nil, fmt.Errorf("the answer has %d elements, want a certificate and the roots", len(answer))
	}
	out := &tls.Certificate{PrivateKey: key}
	between := x509.NewCertPool()
	for i, text := range answer[:len(answer)-1] {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, fmt.Errorf("element %d of the answer is not PEM", i)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("element %d of the answer: %w", i, err)
		}
		out.Certificate = append(out.Certificate, block.Bytes)
		if between.AddCert(c); i == 0 {
			out.Leaf = c
		}
	}
	if public, ok := out.Leaf.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(&key.PublicKey) {
		return nil, errors.New("the certificate is for another key")
	}
	if _, err := out.Leaf.Verify(x509.VerifyOptions{Roots: b.Roots, Intermediates: between, DNSName: b.ServerName}); err != nil {
		return nil, fmt.Errorf("the certificate of %v, serial %s, is not usable as this process's serving certificate "+
			"(peers sign such certificates only for the control plane's service accounts: check the token): %w",
			out.Leaf.URIs, issue.SerialString(out.Leaf.SerialNumber), err)
	}
	return out, nil
}
