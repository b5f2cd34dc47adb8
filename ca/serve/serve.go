// Package serve signs certificates over gRPC for Istio's agents
// (istio.v1.auth.IstioCertificateService/CreateCertificate). It authenticates the caller, queues the request, signs it,
// and returns the certificate once the Journal has stored it. It also accepts navarch-agent's reports of root bundles,
// and tells peers (other replicas) which keyring record (CA state in etcd) this replica remembers.
//
// Owns: the queue of certificate requests.
// Reads: the current signing authority, the caller's identity, revocations.
// Never: takes an identity from a CSR; returns a certificate of our CA before a journal has it; logs a token or a CSR.
package serve

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/obs"
)

// Current contains the signing authority and the trust bundle that are in use. Its content must not be changed.
type Current struct {
	Authority *issue.Authority    // signs the certificates
	Bundle    []*x509.Certificate // all roots that workloads must trust; they become the last element of a response
	// Publication is the number of the published bundle. Journal entries contain it, so that a root rotation knows
	// which bundle was delivered with each certificate.
	Publication uint64
}

// Authorities provides the current signing authority. The server calls Current for each attempt to sign, from many
// goroutines at once. An error says why nothing can be signed: for example, the signing key cannot be decrypted or is
// not loaded yet, or the authority has expired. The agent receives the error as Unavailable.
type Authorities interface {
	Current() (*Current, error)
}

// Entry describes one issued certificate.
type Entry struct {
	Serial      string // as Serial returns it
	Identity    spiffeid.ID
	Epoch       uint64 // of the signing key
	Publication uint64 // Current.Publication at the time of signing
	NotBefore   time.Time
	NotAfter    time.Time
	By          string   // attest.Caller.By
	Pod         string   // attest.Caller.Pod
	Credential  string   // distinguishes the credentials of the identity (attest.Caller.Credential)
	Peer        string   // network address of the caller; empty: unknown
	Previous    string   // serial number of the certificate that the caller showed; empty: the credential was a token
	Names       []string // DNS names of the certificate
}

// Journal stores entries of issued certificates. Append returns nil once the entry is durable. Many goroutines call
// Append at once, so it should commit in groups. ErrStale: the entry was not written, and the server signs again with
// the current authority, at most three times. ErrRevoked: the entry was not written, since the identity is revoked.
// After any other error the outcome is unknown, and the server does not return this certificate.
type Journal interface {
	Append(ctx context.Context, e Entry) error
}

// Errors of a Journal, for errors.Is. FallbackJournal.Spend returns ErrRevoked, too.
var (
	ErrStale   = errors.New("the signer or the root bundle has changed since the certificate was signed")
	ErrRevoked = errors.New("the identity is revoked")
)

// Revocations reports revoked identities and certificates. Serial numbers have the form of Serial: lower-case
// hexadecimal without leading zeros. Many goroutines call its methods at once.
type Revocations interface {
	RevokedIdentity(id spiffeid.ID) bool
	RevokedSerial(serial string) bool
}

// Holder is an agent's unverified report that its Envoy acknowledged a root bundle.
type Holder struct {
	Identity   spiffeid.ID
	Credential string    // attest.Caller.Credential
	Serial     string    // of the certificate that authenticated the report, as the function Serial returns it
	Roots      []string  // Fingerprint of each root, sorted, without duplicates
	Peer       string    // network address of the agent; empty: unknown
	NotAfter   time.Time // of the certificate with this Serial
}

// Holders stores agents' reports of root bundles. Many goroutines call Held at once. The agent receives an error as
// Unavailable.
type Holders interface {
	Held(ctx context.Context, h Holder) error
}

// Config configures a Server. Authenticator is required. Without a Registrar, Authorities and Journal are required,
// too.
type Config struct {
	// Registrar obtains certificates from another CA; nil: the server signs with Authorities. With a Registrar, the
	// fields Authorities, Journal, Fallback, ControlPlane, Cluster, Names, Aliases and Random have no effect.
	Registrar     Registrar
	Authorities   Authorities
	Authenticator attest.Authenticator
	Journal       Journal
	Fallback      FallbackJournal // records renewals while the Journal fails; nil: renewals fail, too
	Revocations   Revocations     // nil: nothing is revoked
	Holders       Holders         // stores reports; nil: reports fail with Unimplemented
	Memory        Memory          // answers peers; nil: peers receive Unimplemented
	// ControlPlane are the identities of the control plane's processes. If a caller proves such an identity by a token,
	// its certificate also contains Names. So a process that cannot sign obtains its serving certificate (PeerIssued).
	// A caller with a certificate does not get Names, because a stolen serving key could then be renewed for ever. The
	// token must come from Cluster, because another cluster can issue tokens for any namespace and service account.
	ControlPlane []spiffeid.ID
	Cluster      string   // name of the config cluster
	Names        []string // DNS names and IP addresses in the certificates of ControlPlane
	// Aliases returns other trust domains under which a CSR may name its caller (MeshConfig trustDomainAliases). Agents
	// that started before the mesh changed its trust domain use an alias. Each attempt to sign calls Aliases, from many
	// goroutines at once. nil: there are no aliases.
	Aliases  func() []spiffeid.TrustDomain
	Policy   issue.Policy
	Renewals Renewals
	Limits   Limits
	Hooks    Hooks
	Audit    *slog.Logger // one line for each certificate, and a sample of refusals and warnings; nil: slog.Default()

	Now    func() time.Time // for validity, Renewals and Hooks, not for the queue; nil: time.Now
	Random io.Reader        // for serial numbers and lifetimes; nil: crypto/rand
}

// Server signs certificates. Safe for concurrent use.
type Server struct {
	cfg       Config
	admission *admission
	checks    [2]*semaphore.Weighted // bound the checks of certificates, and those of tokens
	again     *semaphore.Weighted    // bounds the simultaneous attempts to sign again
	peers     *semaphore.Weighted    // bounds the simultaneous answers to peers: 1

	clients *obs.Sampled // log lines of refusals
}

// New validates the configuration, sets defaults, and returns a Server. The error names all missing fields. If no field
// is missing, it names an invalid field of Limits or Policy.
func New(cfg Config) (*Server, error) {
	var missing []error
	if cfg.Authorities == nil && cfg.Registrar == nil {
		missing = append(missing, errors.New("config.Authorities is not set"))
	}
	if cfg.Authenticator == nil {
		missing = append(missing, errors.New("config.Authenticator is not set"))
	}
	if cfg.Journal == nil && cfg.Registrar == nil {
		missing = append(missing, errors.New("config.Journal is not set"))
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("ca/serve: %w", errors.Join(missing...))
	}
	if cfg.Audit == nil {
		cfg.Audit = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if err := cfg.Limits.fill(); err != nil {
		return nil, fmt.Errorf("ca/serve: %w", err)
	}
	if err := cfg.Policy.Check(); err != nil {
		return nil, fmt.Errorf("ca/serve: %w", err)
	}
	if cfg.Aliases == nil {
		cfg.Aliases = func() []spiffeid.TrustDomain { return nil }
	}
	cfg.Hooks.fill()
	s := &Server{cfg: cfg, admission: newAdmission(cfg.Limits, time.Now),
		again: semaphore.NewWeighted(int64(cfg.Limits.Signing)), peers: semaphore.NewWeighted(1),
		clients: obs.NewSampled(cfg.Audit)}
	for i := range s.checks {
		s.checks[i] = semaphore.NewWeighted(int64(cfg.Limits.Checks))
	}
	return s, nil
}

// Register adds the services for certificates, reports of root bundles, and peers to a gRPC server, before it serves.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&certificatesDesc, s)
	r.RegisterService(&holdersDesc, s)
	r.RegisterService(&peersDesc, s)
}

// Limits bound the server's work. The first sentence of each comment ends with a colon and the default. A zero field
// means the default. New refuses negative fields.
type Limits struct {
	// Signing bounds the requests that are signed at once: GOMAXPROCS. The same number of certificates may be signed
	// again at the same time, after ErrStale or for the FallbackJournal.
	Signing int
	Checks  int // callers' certificates verified at once, and as many tokens: 4 x GOMAXPROCS
	Journal int // requests that are being signed or journalled: 4096
	Waiting int // requests that are queued or delayed: 32768. In a full queue, first certificates displace renewals.
	// WaitingBytes bounds the bytes of all CSRs that are queued or delayed: 32 MiB. One identity may use at most half
	// of them, and one credential at most a quarter.
	WaitingBytes int
	// MaxWait bounds the time in the queue: 20 s. It separately bounds the time in the Journal or Registrar. An earlier
	// deadline of the request takes precedence.
	MaxWait time.Duration
	// Rate bounds the requests of one identity per second on average: 500. One credential may have a quarter of it.
	// Requests above the rate are delayed, or refused if the delay exceeds MaxWait or their deadline.
	Rate      float64
	Burst     int // requests of one identity at once: 5000. One credential: a quarter, at least 1.
	FirstRuns int // first certificates in a row before one renewal, while renewals wait: 15
}

func (l *Limits) fill() error {
	cores := runtime.GOMAXPROCS(0)
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"Signing", &l.Signing, cores}, {"Checks", &l.Checks, 4 * cores}, {"Journal", &l.Journal, 4096},
		{"Waiting", &l.Waiting, 32768}, {"WaitingBytes", &l.WaitingBytes, 32 << 20}, {"Burst", &l.Burst, 5000}, {"FirstRuns", &l.FirstRuns, 15},
	} {
		if *f.value < 0 {
			return fmt.Errorf("config.Limits.%s is %d, must not be negative", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if l.MaxWait < 0 || l.Rate < 0 {
		return errors.New("config.Limits.MaxWait and Limits.Rate must not be negative")
	}
	if l.MaxWait == 0 {
		l.MaxWait = 20 * time.Second
	}
	if l.Rate == 0 {
		l.Rate = 500
	}
	return nil
}
