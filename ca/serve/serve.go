// Package serve answers certificate signing requests over gRPC, under the name that Istio's agents call
// (istio.v1.auth.IstioCertificateService/CreateCertificate), and takes agents' reports of the bundle they hold.
//
// Owns: the admission queue.  Reads: the authority in force, who the caller is, what is revoked.  Never: takes an identity
// from a CSR; answers before the journal holds the certificate; logs a token or a CSR.
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

// Current is what signs at this moment, and what peers must trust. Immutable.
type Current struct {
	Authority *issue.Authority
	Bundle    []*x509.Certificate // every root that peers must trust: the last element of an answer
	// Publication numbers the bundle: it goes to the journal with each certificate, so that a root rotation can tell who
	// was issued a chain after the bundle was published.
	Publication uint64
}

// Authorities gives what is in force. An error (sealed, not loaded yet, expired) says why nothing can be signed; callers are
// told it, with Unavailable.
type Authorities interface {
	Current() (*Current, error)
}

// Entry is the record of one certificate.
type Entry struct {
	Serial      string // hexadecimal
	Identity    spiffeid.ID
	Epoch       uint64
	Publication uint64
	NotBefore   time.Time
	NotAfter    time.Time
	By          string // attest.Caller.By
	Pod         string
	Credential  string // what tells apart the credentials of the identity (attest.Caller.Credential)
	Peer        string // network address
	// Previous is the serial of the certificate that this one renews; empty: a token was the credential. A root rotation
	// counts on it that who renewed no longer waits on the certificate before.
	Previous string
	Names    []string // that the certificate has beside the identity
}

// Journal keeps entries. Append returns nil once the entry is durable; it is called by many goroutines at once, and is
// expected to commit in groups. ErrStale: the entry was not written, sign again with what is in force. ErrRevoked: nor
// was it, because its identity may have no certificate any more. After any other error it is unknown.
type Journal interface {
	Append(ctx context.Context, e Entry) error
}

// What a Journal may refuse an entry for, for errors.Is.
var (
	ErrStale   = errors.New("what was in force when the certificate was signed is no longer")
	ErrRevoked = errors.New("the identity is revoked")
)

// Revocations says who and what is revoked. Serial numbers are lower-case hexadecimal without leading zeros.
type Revocations interface {
	RevokedIdentity(id spiffeid.ID) bool
	RevokedSerial(serial string) bool
}

// Holder is an agent's word that its Envoy acknowledged a root bundle.
type Holder struct {
	Identity   spiffeid.ID
	Credential string   // attest.Caller.Credential
	Serial     string   // of the certificate that the report came with
	Roots      []string // Fingerprint of each, sorted
	Peer       string
	NotAfter   time.Time // of the certificate
}

// Holders takes reports. It is called by many goroutines.
type Holders interface {
	Held(ctx context.Context, h Holder) error
}

// Config of a Server. Authenticator is required, and Authorities and Journal, or a Registrar in their place.
type Config struct {
	// Registrar has another CA sign; nil: Authorities do. With it Journal, Spare, Revocations by serial number, Holders and Names are of no use.
	Registrar     Registrar
	Authorities   Authorities
	Authenticator attest.Authenticator
	Journal       Journal
	Spare         Spare       // nil: nothing is issued while the Journal is away
	Revocations   Revocations // nil: nothing is revoked
	Holders       Holders     // nil: reports are answered Unimplemented
	Memory        Memory      // nil: peers are answered Unimplemented
	// ControlPlane are the identities of the control plane's processes. Who proves by a token that it has one, and nobody else, gets
	// the Names too: a process that cannot sign asks for its serving certificate so (PeerIssued). A certificate does not count: it
	// would let a stolen serving key live on. Nor does a token of another cluster than Cluster: whoever rules there may have one of any
	// namespace and service account. Empty: nobody.
	ControlPlane []spiffeid.ID
	Cluster      string   // the config cluster, by its name in attest.Caller
	Names        []string // see issue.Request
	// Aliases are other trust domains under which a CSR may name its caller, as agents do that were started before the mesh
	// changed its own (MeshConfig trustDomainAliases); asked for each request. nil: none.
	Aliases  func() []spiffeid.TrustDomain
	Policy   issue.Policy
	Renewals Renewals
	Limits   Limits
	Hooks    Hooks
	Audit    *slog.Logger // one line for each certificate, and of refusals a sample; nil: slog.Default()

	Now    func() time.Time // by which certificates begin and end; requests wait by the process's own time, as their deadlines do
	Random io.Reader
}

// Server signs. Safe for concurrent use.
type Server struct {
	cfg       Config
	admission *admission
	checks    [2]*semaphore.Weighted // of certificates, of tokens: neither waits behind the other
	again     *semaphore.Weighted    // signing again what has become stale
	peers     *semaphore.Weighted    // answering peers

	clients *obs.Sampled // log lines of refusals
}

// New checks the configuration and fills in defaults. An error names what is missing or out of range.
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
	s := &Server{cfg: cfg, admission: newAdmission(cfg.Limits, time.Now), again: semaphore.NewWeighted(int64(cfg.Limits.Signing)), peers: semaphore.NewWeighted(1),
		clients: obs.NewSampled(cfg.Audit)}
	for i := range s.checks {
		s.checks[i] = semaphore.NewWeighted(int64(cfg.Limits.Checks))
	}
	return s, nil
}

// Register adds the services to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&certificatesDesc, s)
	r.RegisterService(&holdersDesc, s)
	r.RegisterService(&peersDesc, s)
}

// Limits bound the work. Zero values get the defaults.
type Limits struct {
	Signing int // certificates being signed at once: GOMAXPROCS
	Checks  int // credentials being checked at once: of each sort: 4 x GOMAXPROCS
	Journal int // signed and not durable yet: 4096
	Waiting int // in the queue: 32768; what comes then displaces renewals, or is refused
	// WaitingBytes bounds the requests in the queue together: 32 MiB. One identity may hold as much as it leaves free, so at most half, and one credential a quarter.
	WaitingBytes int
	MaxWait      time.Duration // of a request, even if its own deadline is later: 20 s
	Rate         float64       // certificates a second for one identity, in the long run: 500; for one credential of it a quarter
	Burst        int           // and at once: 5000; for one credential a quarter
	FirstRuns    int           // first certificates in a row while renewals wait, before one renewal: 15
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
