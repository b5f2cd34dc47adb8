// Package attest says who a caller is: from a token or from the certificate of its connection, never from what it asks
// for.
//
// Owns: caches of verification keys and of verified tokens.  Reads: nothing of ours.  Never: logs a token.
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
	// By says what proved it: "token" or "certificate". A caller by certificate renews; its first certificate it gets by
	// token.
	By string
	// Pod is the pod that the token is bound to, where it says so; of a certificate, that of the token which it follows from (issue.Origin).
	// PodUID is the pod's uid, where it says so.
	Pod, PodUID string
	// AccountUID is the uid of the service account, where a token says it; of a certificate that is not known.
	AccountUID string
	// Issued is when the credential was; zero: that is not known.
	Issued time.Time
	// Serial is the client certificate's, hexadecimal as issue.SerialString writes it; empty where a token proved it.
	Serial string
	// Cluster is the one whose keys verified the token, or that which a certificate follows from; empty where that is not known.
	Cluster string
	// Token tells tokens that are bound to no pod from each other: the id (jti), else a digest. Of a certificate, that of the token which
	// it follows from, or the serial number of the first one that did not say; empty: it does not say itself.
	Token string
	// Proven is when a token proved it last, as the CA found out; zero: not known here.
	Proven time.Time
	// NotBefore is when a certificate began; zero of tokens. NotAfter is when the credential ends; zero where who reviewed a token does
	// not say.
	NotBefore, NotAfter time.Time
}

// Origin is what a certificate for the caller says of what proved them. What renews a certificate that says nothing names its serial
// number.
func (c Caller) Origin() issue.Origin {
	o := issue.Origin{Pod: c.Pod, PodUID: c.PodUID, Token: c.Token, Cluster: c.Cluster}
	if o.Pod == "" {
		o.Token = cmp.Or(o.Token, c.Serial)
	}
	return o
}

// Credential tells apart what callers of one identity have shown, and is the same for a token and for all certificates that follow
// from it. Empty: nothing does.
func (c Caller) Credential() string {
	if c.Pod != "" {
		return strings.TrimSuffix(c.Pod+"/"+c.PodUID, "/")
	}
	return cmp.Or(c.Token, c.Serial)
}

// ProvesToBeOf says whether what the caller has shown proves that it is of a cluster. Identities name no cluster (SPIFFE IDs of
// Istio are of a namespace and a service account of the whole mesh), so what is a cluster's own is not given by the identity alone: a certificate that does not say of which
// cluster's token it follows (another CA's, an older version's) may be of any, and proves none. A token whose issuer is of no cluster is our own issuer's (Local), whose key is the
// control plane's: it is of the cluster that its holder says.
func (c Caller) ProvesToBeOf(cluster string) bool {
	return c.Cluster == cluster || c.Cluster == "" && c.By == ByToken
}

// What Caller.By says.
const (
	ByToken       = "token"
	ByCertificate = "certificate"
)

// Authenticator finds out who the caller of a gRPC method is, from the context's peer and metadata. ErrNone: it found no
// credential of its sort, so another may try; any other error is final and says what is wrong.
type Authenticator interface {
	Authenticate(ctx context.Context) (Caller, error)
}

// ErrNone is returned by an Authenticator that found no credential of its sort.
var ErrNone = errors.New("no credential")

// Errors that say why a credential is not accepted, for errors.Is. All that match ErrDenied are the credential's fault
// (gRPC Unauthenticated); ErrUnavailable is ours (Unavailable): the same credential may be accepted later. No error shows a
// token.
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

// Chain asks one authenticator after the other. ErrNone passes on to the next; any other answer is final, so that a bad
// credential never hides behind another. With none left it is ErrNone, which names what was looked for.
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

// workload is the path of every identity of the mesh.
func workload(td spiffeid.TrustDomain, namespace, account string) (spiffeid.ID, error) {
	id, err := spiffeid.FromSegments(td, "ns", namespace, "sa", account)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("%w: namespace %.70q, service account %.260q: %w", ErrIdentity, namespace, account, err)
	}
	return id, nil
}
