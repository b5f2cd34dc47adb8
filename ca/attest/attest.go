// Package attest authenticates callers: by a token or by the certificate of the connection, never by the content of a
// request.
//
// Owns: caches of verification keys and of verified tokens.
// Reads: nothing of ours.
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
	// Pod is the pod that the token is bound to, if any; for a certificate, that of the token which it goes back to
	// (issue.Origin). PodUID is the pod's uid, if known.
	Pod, PodUID string
	// AccountUID is the uid of the service account in a token; empty for certificates.
	AccountUID string
	// Issued is the time when the credential was issued; zero: unknown.
	Issued time.Time
	// Serial is the client certificate's serial number as issue.SerialString writes it; empty for tokens.
	Serial string
	// Cluster is the cluster whose keys verified the token, or the one which a certificate goes back to; empty:
	// unknown.
	Cluster string
	// Token distinguishes tokens without a pod: the id (jti), else a digest. For a certificate it is that of the token
	// which it goes back to, or the serial number of the first certificate without an origin. Empty: unknown.
	Token string
	// Proven is the time of the last proof by a token, as the CA determined it; zero: unknown here.
	Proven time.Time
	// NotBefore is the begin of a certificate; zero for tokens. NotAfter is the end of the credential; zero if a
	// token's reviewer does not state it.
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

// ProvesToBeOf reports whether the caller's credential proves its cluster. Istio's SPIFFE IDs name a namespace and a
// service account of the whole mesh, so the identity alone does not show a cluster. A certificate without a cluster
// (another CA's, or an older version's) proves none. A token without a cluster is of our own issuer (Local), whose key
// is the control plane's: its holder's claim is accepted.
func (c Caller) ProvesToBeOf(cluster string) bool {
	return c.Cluster == cluster || c.Cluster == "" && c.By == ByToken
}

// Values of Caller.By.
const (
	ByToken       = "token"
	ByCertificate = "certificate"
)

// Authenticator authenticates the caller of a gRPC method by the context's peer and metadata. ErrNone: there is no
// credential of its kind, so another Authenticator may try. Any other error is final.
type Authenticator interface {
	Authenticate(ctx context.Context) (Caller, error)
}

// ErrNone is returned by an Authenticator that found no credential of its kind.
var ErrNone = errors.New("no credential")

// Reasons to refuse a credential, for errors.Is. Errors that match ErrDenied are the credential's fault (gRPC
// Unauthenticated). ErrUnavailable is the control plane's (Unavailable): the same credential may be accepted later. No
// error shows a token.
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

// Chain tries the authenticators in order. ErrNone passes on to the next; any other result is final, so that an invalid
// credential cannot hide behind another. If all return ErrNone, the error joins them.
func Chain(authenticators ...Authenticator) Authenticator { return chain(authenticators) }

type chain []Authenticator

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
