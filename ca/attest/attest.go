// Package attest authenticates callers by a token or by the connection's certificate, never by the content of a
// request.
//
// Owns: caches of verification keys (also in files) and of verified tokens; the key of the token issuer that Local
// returns.
// Reads: the key file of that issuer (token-issuer.key); files and URLs of verification keys.
// Never: logs a token.
package attest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
)

// Caller is an authenticated peer.
type Caller struct {
	ID             spiffeid.ID // spiffe://<trust domain>/ns/<ns>/sa/<sa>
	Namespace      string
	ServiceAccount string
	// By is the kind of the credential: ByToken or ByCertificate. The first certificate of a workload is issued by
	// token; renewals may use the certificate.
	By string
	// Pod is the name of the Pod that the token is bound to. It is empty if there is no Pod, or if the Pod is unknown.
	// PodUID is the Pod's uid, or empty if unknown. A certificate has both values from the token that obtained the
	// first certificate; renewals keep them (issue.Origin).
	Pod, PodUID string
	// AccountUID is the uid of the service account in a token. It is empty for certificates, and for tokens without the
	// uid.
	AccountUID string
	// Issued is the time when the token was issued. For a certificate it is the time when a token last proved the
	// caller's identity (issue.Follows). With Certificates.Foreign, or if the certificate does not state that time, it
	// is the certificate's time of issue (issue.IssuedAt). Issued is zero if the time is unknown.
	Issued time.Time
	// Serial is the client certificate's serial number as issue.SerialString writes it; empty for tokens.
	Serial string
	// Cluster is the cluster whose keys or Reviewer verified the token. A certificate records the cluster of its first
	// token. Cluster is empty if unknown.
	Cluster string
	// Token identifies a token that is not bound to a Pod. It is the first 128 bytes of the token's id (jti). Without
	// an id it is a digest of the token. For a certificate it is the value in the certificate's issue.Origin. Token is
	// empty if unknown, and for credentials that are bound to a Pod.
	Token string
	// Proven is the time when a token last proved the caller's identity. This package leaves it zero; ca/serve sets it.
	Proven time.Time
	// NotBefore is the start of a certificate's validity. It is zero for tokens. NotAfter is the end of the
	// credential's validity, without the tolerance TokensConfig.Leeway.
	NotBefore, NotAfter time.Time
}

// Origin returns the origin to record in a certificate for the caller: Pod, PodUID, Token and Cluster. If Pod and Token
// are empty, Serial takes the place of Token.
func (c Caller) Origin() issue.Origin {
	o := issue.Origin{Pod: c.Pod, PodUID: c.PodUID, Token: c.Token, Cluster: c.Cluster}
	if o.Pod == "" {
		o.Token = cmp.Or(o.Token, c.Serial)
	}
	return o
}

// Credential returns a value that distinguishes the credentials of one identity. A token, the certificates that this CA
// issues for the token, and their renewals all have the same value. With a Pod the value is POD/UID, or POD if PodUID
// is empty. So all tokens of one Pod share a value. Without a Pod the value is Token, or Serial if Token is empty. If
// both are empty, the credential is unknown and the result is empty.
func (c Caller) Credential() string {
	if c.Pod != "" {
		return strings.TrimSuffix(c.Pod+"/"+c.PodUID, "/")
	}
	return cmp.Or(c.Token, c.Serial)
}

// ProvesToBeOf reports whether the caller's credential proves that the caller belongs to a cluster. The SPIFFE ID is no
// such proof, because Istio's IDs name a namespace and a service account, but no cluster. The result is true if the
// parameter cluster equals c.Cluster, even if both are empty. If c.Cluster is empty, a token proves every cluster,
// because callers of a TokenIssuer without a cluster may claim any cluster. If c.Cluster is empty, a certificate proves
// no cluster that has a name.
func (c Caller) ProvesToBeOf(cluster string) bool {
	return c.Cluster == cluster || c.Cluster == "" && c.By == ByToken
}

// Values of Caller.By.
const (
	ByToken       = "token"
	ByCertificate = "certificate"
)

// Authenticator authenticates callers of gRPC methods by the context's peer and metadata.
type Authenticator interface {
	// Authenticate returns the verified caller. An error that matches ErrNone means that the call has no credential of
	// the Authenticator's kind, so another Authenticator may try. Any other error refuses the call. With an error the
	// Caller is zero. Authenticate is safe for concurrent use.
	Authenticate(ctx context.Context) (Caller, error)
}

// ErrNone means that an Authenticator found no credential of its kind.
var ErrNone = errors.New("no credential")

// Reasons to refuse a credential, for errors.Is. ErrDenied means a fault of the credential (gRPC Unauthenticated). The
// errors from ErrMalformed to ErrIdentity match ErrDenied. ErrUnavailable means a fault of the control plane (gRPC
// Unavailable), so the same credential may be accepted later. No error shows a token.
var (
	ErrDenied      = errors.New("credential not accepted")
	ErrMalformed   = fmt.Errorf("%w: malformed", ErrDenied)
	ErrTooLarge    = fmt.Errorf("%w: too large", ErrDenied)
	ErrAlgorithm   = fmt.Errorf("%w: signature algorithm", ErrDenied)
	ErrIssuer      = fmt.Errorf("%w: unknown issuer", ErrDenied)
	ErrUnknownKey  = fmt.Errorf("%w: unknown key", ErrDenied)
	ErrSignature   = fmt.Errorf("%w: signature does not verify", ErrDenied)
	ErrExpired     = fmt.Errorf("%w: expired", ErrDenied)
	ErrNotYet      = fmt.Errorf("%w: not valid yet", ErrDenied)
	ErrAudience    = fmt.Errorf("%w: wrong audience", ErrDenied)
	ErrIdentity    = fmt.Errorf("%w: identity", ErrDenied)
	ErrUnavailable = errors.New("credential cannot be verified now")
)

// Chain returns an Authenticator that tries authenticators in order, until one succeeds or its error does not match
// ErrNone. So an invalid credential refuses the call, even if a later authenticator would accept another credential. If
// all errors match ErrNone, the error joins them. Without authenticators the error is ErrNone. The caller must not
// modify the slice afterwards.
func Chain(authenticators ...Authenticator) Authenticator { return chain(authenticators) }

type chain []Authenticator

// Authenticate implements Authenticator; see Chain.
func (c chain) Authenticate(ctx context.Context) (Caller, error) {
	var missing []error
	for _, a := range c {
		caller, err := a.Authenticate(ctx)
		if !errors.Is(err, ErrNone) {
			return caller, err
		}
		missing = append(missing, err)
	}
	if len(missing) == 0 {
		return Caller{}, ErrNone
	}
	return Caller{}, errors.Join(missing...)
}

// workload returns the SPIFFE ID of a service account. The error matches ErrIdentity, and means that a name cannot be
// part of a SPIFFE ID.
func workload(td spiffeid.TrustDomain, namespace, account string) (spiffeid.ID, error) {
	id, err := spiffeid.FromSegments(td, "ns", namespace, "sa", account)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("%w: namespace %.70q, service account %.260q: %w", ErrIdentity, namespace, account, err)
	}
	return id, nil
}
