// Package attest authenticates callers by a token or by the connection's certificate, never by the content of a
// request.
//
// Owns: caches of verification keys (also in files) and of verified tokens; the key of our own issuer (Local).
// Reads: nothing else of ours.
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
	// By is the kind of the credential: ByToken or ByCertificate. A caller by certificate renews; first certificates
	// are issued by token.
	By string
	// Pod is the name of the Pod that the token is bound to; empty: none. PodUID is the Pod's uid; empty: unknown. A
	// certificate has both from the token that it goes back to (issue.Origin).
	Pod, PodUID string
	// AccountUID is the uid of the service account in a token; empty for certificates, and for tokens without it.
	AccountUID string
	// Issued is the time when a token was issued. For a certificate it is the time when a token last proved the caller
	// (issue.Follows), with Certificates.Foreign the certificate's time of issue (issue.IssuedAt). Zero: unknown.
	Issued time.Time
	// Serial is the client certificate's serial number as issue.SerialString writes it; empty for tokens.
	Serial string
	// Cluster is the cluster whose keys or Reviewer verified the token. A certificate has the cluster of the token that
	// it goes back to. Empty: unknown.
	Cluster string
	// Token distinguishes tokens without a Pod: the first 128 bytes of the id (jti), else a digest. A certificate has
	// the value of the token that it goes back to, or the serial number of the first certificate without an origin.
	// Empty: unknown.
	Token string
	// Proven is the time when a token last proved the caller. Only ca/serve sets it. Zero: unknown.
	Proven time.Time
	// NotBefore is the start of a certificate's validity; zero for tokens. NotAfter is the end of the credential's
	// validity.
	NotBefore, NotAfter time.Time
}

// Origin returns the origin to record in a certificate for the caller. A renewal of a certificate without an origin
// records that certificate's serial number.
func (c Caller) Origin() issue.Origin {
	o := issue.Origin{Pod: c.Pod, PodUID: c.PodUID, Token: c.Token, Cluster: c.Cluster}
	if o.Pod == "" {
		o.Token = cmp.Or(o.Token, c.Serial)
	}
	return o
}

// Credential distinguishes the credentials of one identity. A token and all certificates that go back to it have the
// same value. With a Pod the value is the Pod's, so all tokens of one Pod share it. Empty: unknown.
func (c Caller) Credential() string {
	if c.Pod != "" {
		return strings.TrimSuffix(c.Pod+"/"+c.PodUID, "/")
	}
	return cmp.Or(c.Token, c.Serial)
}

// ProvesToBeOf reports whether the caller's credential proves that the caller belongs to a cluster. Istio's SPIFFE IDs
// name a namespace and a service account of the whole mesh, so the ID alone does not show a cluster. A certificate
// without a cluster (another CA's, or an older version's) does not prove any. A token without a cluster proves each: it
// comes from our own issuer (Local), or another TokenIssuer whose callers may claim any cluster.
func (c Caller) ProvesToBeOf(cluster string) bool {
	return c.Cluster == cluster || c.Cluster == "" && c.By == ByToken
}

// Values of Caller.By.
const (
	ByToken       = "token"
	ByCertificate = "certificate"
)

// Authenticator authenticates the caller of a gRPC method by the context's peer and metadata. ErrNone: the call has no
// credential of the Authenticator's kind, so another one may try. Any other error is final.
type Authenticator interface {
	Authenticate(ctx context.Context) (Caller, error)
}

// ErrNone means that an Authenticator found no credential of its kind.
var ErrNone = errors.New("no credential")

// Reasons to refuse a credential, for errors.Is. ErrDenied means a fault of the credential (gRPC Unauthenticated).
// ErrUnavailable means a fault of the control plane (Unavailable): the same credential may be accepted later. No error
// shows a token.
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

// Chain returns an Authenticator that tries others in order. After ErrNone it tries the next. Any other result is
// final, so that an invalid credential cannot hide behind another. If all return ErrNone, the error joins theirs.
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

// workload returns the SPIFFE ID of a service account.
func workload(td spiffeid.TrustDomain, namespace, account string) (spiffeid.ID, error) {
	id, err := spiffeid.FromSegments(td, "ns", namespace, "sa", account)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("%w: namespace %.70q, service account %.260q: %w", ErrIdentity, namespace, account, err)
	}
	return id, nil
}
