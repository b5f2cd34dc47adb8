package attest

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/issue"
)

// Certificates authenticates callers by the client certificates of their connections. The TLS handshake must have
// verified the certificates. Certificates is safe for concurrent use if the functions Aliases and Now are.
type Certificates struct {
	// TrustDomain is the trust domain of each Caller.ID. A certificate may name one of Aliases instead, such as an
	// earlier trust domain of the mesh. Aliases is called only for certificates whose trust domain differs from
	// TrustDomain. If Aliases is nil, there are no aliases.
	TrustDomain spiffeid.TrustDomain
	Aliases     func() []spiffeid.TrustDomain
	// Foreign means that a CA other than Navarch's signs the client certificates. That CA may copy extensions from
	// CSRs, so extensions about a certificate's token are ignored. If Foreign is true, Caller.Pod, PodUID, Token and
	// Cluster are empty.
	Foreign bool
	Now     func() time.Time // nil: time.Now
}

// Authenticate implements Authenticator. The error matches ErrNone if the context has no TLS connection with a client
// certificate. All other errors match ErrDenied.
func (c *Certificates) Authenticate(ctx context.Context) (Caller, error) {
	none := fmt.Errorf("%w: no client certificate", ErrNone)
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, none
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return Caller{}, none
	}
	if len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return Caller{}, fmt.Errorf("%w: the client certificate was not verified", ErrDenied)
	}
	return c.Verify(info.State.VerifiedChains[0][0])
}

// Verify returns the caller named by a certificate whose chain the TLS handshake verified. It checks the end of
// validity again, because a connection may outlive the certificate that opened it. It does not check the start of
// validity. Errors match ErrDenied. The error also matches ErrExpired if the certificate has expired. It also matches
// ErrIdentity if the certificate is a CA's, does not have exactly one URI name, or its name is not a workload's SPIFFE
// ID of this mesh.
func (c *Certificates) Verify(leaf *x509.Certificate) (Caller, error) {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	if at := now(); at.After(leaf.NotAfter) {
		return Caller{}, fmt.Errorf("%w: client certificate ended at %s", ErrExpired, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if leaf.IsCA {
		return Caller{}, fmt.Errorf("%w: the client certificate is a CA's", ErrIdentity)
	}
	if n := len(leaf.URIs); n != 1 {
		return Caller{}, fmt.Errorf("%w: the client certificate has %d URI names, a SPIFFE certificate has one", ErrIdentity, n)
	}
	id, err := spiffeid.FromURI(leaf.URIs[0])
	if err != nil {
		return Caller{}, fmt.Errorf("%w: client certificate: %w", ErrIdentity, err)
	}
	namespace, account, err := ParsePath(id)
	if err != nil {
		return Caller{}, err
	}
	if td := id.TrustDomain(); td != c.TrustDomain && (c.Aliases == nil || !slices.Contains(c.Aliases(), td)) {
		return Caller{}, fmt.Errorf("%w: trust domain %s of the client certificate is neither %s nor an alias of it",
			ErrIdentity, id.TrustDomain(), c.TrustDomain)
	}
	if id, err = workload(c.TrustDomain, namespace, account); err != nil {
		return Caller{}, err
	}
	caller := Caller{ID: id, Namespace: namespace, ServiceAccount: account, By: ByCertificate, Serial: issue.SerialString(leaf.SerialNumber),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter}
	if c.Foreign {
		caller.Issued = issue.IssuedAt(leaf)
		return caller, nil
	}
	caller.Issued = issue.Follows(leaf)
	origin := issue.OriginOf(leaf)
	caller.Pod, caller.PodUID, caller.Token, caller.Cluster = origin.Pod, origin.PodUID, origin.Token, origin.Cluster
	return caller, nil
}

var errPath = errors.New("path is not /ns/<namespace>/sa/<service account>")

// ParsePath returns the namespace and service account of spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
// The error matches ErrIdentity, and means that the path does not have this form.
func ParsePath(id spiffeid.ID) (namespace, account string, err error) {
	s := strings.Split(id.Path(), "/")
	if len(s) != 5 || s[1] != "ns" || s[3] != "sa" {
		return "", "", fmt.Errorf("%w: %s: %w", ErrIdentity, id, errPath)
	}
	return s[2], s[4], nil
}
