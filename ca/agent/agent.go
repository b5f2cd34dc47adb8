// Package agent is the part of navarch-agent that maintains a workload's identity. It makes a key and requests a
// certificate for the key. It serves both to Envoy by SDS on a Unix socket, and renews both before they expire. Over
// the same socket it serves PEM files whose paths Envoy names in its requests. A root is a CA certificate that the
// agent and Envoy trust.
//
// Owns: the private key, in memory and in Config.OutputDir; the SDS socket; the certificate files in Config.OutputDir.
// Reads: the token file, for each certificate request that uses the token; the root file, periodically; the files that
// Envoy names.
// Never: logs a private key; sends a private key over a network; calls a CA that it cannot verify; drops a certificate
// before it has the next one.
package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"

	"navarch.io/navarch/store/socket"
)

// Config configures an Agent.
type Config struct {
	Address    string // address of the CA, as host:port
	ServerName string // DNS name in the CA's certificate; empty: the host of Address
	// RootFile is the path of the mesh's root certificates (PEM), read every RootPoll. While the file cannot be read or
	// parsed, the roots read before stay trusted. The field Roots contains further roots (PEM), which are constant.
	// RootFile, Roots or both are required.
	RootFile string
	Roots    []byte
	RootPoll time.Duration // period of reading RootFile and of checking the files that Envoy names; 0: 10 s
	// TokenFile is the path of the file with the bearer token. The file is read for each request that uses the token.
	// If TokenFile is empty, requests to the CA fail, because the first certificate needs a token.
	TokenFile string
	// Name is the identity in CSRs, for signers that read the identity from the CSR. If Name is zero, CSRs contain no
	// identity. A CA that reads the identity from the credential refuses a CSR with a different identity.
	Name     spiffeid.ID
	TTL      time.Duration     // requested lifetime, truncated to seconds; less than 1 s: the CA's default
	Metadata map[string]string // gRPC metadata of certificate requests, for example ClusterID; New copies the map

	// Socket is the path of the SDS socket. If it is empty, SDS is not served. Clients of the socket receive the key,
	// so only processes of this process's user may connect. Envoy runs as the same user. Refused, if not nil, is called
	// for each connection that was closed because the client runs as another or an unknown user. No connection is
	// accepted until Refused returns.
	Socket  string
	Refused func(socket.Peer)
	// OutputDir is the folder for cert-chain.pem, key.pem and root-cert.pem (OUTPUT_CERTS of Istio). If it is empty, no
	// files are written. A missing folder is created with mode 0700.
	OutputDir string

	RenewAt float64 // fraction of a new certificate's remaining lifetime after which Run renews, in [0, 1); 0: 0.5
	// Jitter is the largest relative random change of RenewAt, in either direction, in [0, 1); 0: 0.1. The changed
	// fraction is at most (1+RenewAt)/2, so that time for retries is left.
	Jitter float64

	Log *slog.Logger // nil: slog.Default()

	sign   func(ctx context.Context, csr []byte, with credential) ([]string, error) // for tests
	held   func(roots []string)                                                     // for tests
	report func(ctx context.Context, roots []string) error
}

// Agent maintains one workload's identity. Any goroutine may call its methods.
type Agent struct {
	cfg      Config
	current  atomic.Pointer[Identity]
	hub      *hub
	force    chan struct{}
	ready    chan struct{}
	held     chan []string // the newest roots that Envoy acknowledged; the capacity is 1
	lastFail atomic.Pointer[failure]

	mu    sync.Mutex // guards the fields below
	trust map[source][]*x509.Certificate
	crls  lists  // revocation lists for Envoy
	key   keyPEM // key of current, for SDS and files
	out   *output
}

type failure struct {
	at  time.Time
	err error
}

// New validates the configuration and returns an Agent, which does nothing until Run. The error names each field that
// is missing, out of range or too long. If these checks succeed, but Roots does not parse, the error reports that.
func New(cfg Config) (*Agent, error) {
	var bad []error
	if cfg.Address == "" {
		bad = append(bad, errors.New("config.Address is empty"))
	}
	if cfg.RootFile == "" && len(cfg.Roots) == 0 {
		bad = append(bad, errors.New("neither config.RootFile nor config.Roots is set: the CA could not be verified"))
	}
	if !(cfg.RenewAt >= 0 && cfg.RenewAt < 1 && cfg.Jitter >= 0 && cfg.Jitter < 1) { // refuses NaN, too
		bad = append(bad, fmt.Errorf("config.RenewAt %g and Jitter %g must be in [0, 1)", cfg.RenewAt, cfg.Jitter))
	}
	if cfg.RootPoll < 0 {
		bad = append(bad, fmt.Errorf("config.RootPoll %v must not be negative", cfg.RootPoll))
	}
	if len(cfg.Socket) > socket.MaxPath {
		bad = append(bad, fmt.Errorf("config.Socket %q is longer than %d bytes", cfg.Socket, socket.MaxPath))
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("ca/agent: %w", errors.Join(bad...))
	}
	if cfg.RenewAt == 0 {
		cfg.RenewAt = 0.5
	}
	if cfg.Jitter == 0 {
		cfg.Jitter = 0.1
	}
	if cfg.RootPoll == 0 {
		cfg.RootPoll = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Metadata = maps.Clone(cfg.Metadata)
	a := &Agent{
		cfg: cfg, force: make(chan struct{}, 1), ready: make(chan struct{}), held: make(chan []string, 1),
		trust: map[source][]*x509.Certificate{},
	}
	a.hub = newHub(cfg.Log, a.acknowledged)
	if cfg.OutputDir != "" {
		a.out = newOutput(cfg.OutputDir)
	}
	if a.cfg.sign == nil {
		a.cfg.sign = a.create
	}
	if a.cfg.report == nil {
		a.cfg.report = a.report
	}
	if len(cfg.Roots) > 0 {
		roots, err := parseCertificates(cfg.Roots)
		if err != nil {
			return nil, fmt.Errorf("ca/agent: Roots: %w", err)
		}
		a.trust[fromConfig] = roots
	}
	return a, nil
}

// Run serves SDS and renews the certificate. It also tells the CA which roots Envoy has acknowledged. When ctx ends,
// Run returns nil. An error means that the socket cannot be served. Failed certificate requests are repeated and do not
// end Run. Run may be called only once.
func (a *Agent) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if a.cfg.Socket != "" {
		l, err := socket.Listen(a.cfg.Socket, socket.Access{Refused: a.cfg.Refused})
		if err != nil {
			return fmt.Errorf("ca/agent: SDS on %s: %w", a.cfg.Socket, err)
		}
		group.Go(func() error { return a.hub.serve(ctx, l) })
		group.Go(func() error { return a.hub.files.follow(ctx, a.cfg.RootPoll) })
	}
	group.Go(func() error { return a.renewals(ctx) })
	group.Go(func() error { return a.sendReports(ctx) })
	return group.Wait()
}

// Ready returns a channel that is closed once the first certificate is in use.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Identity returns the certificate in use, or nil before the first certificate. The Identity must not be modified.
func (a *Agent) Identity() *Identity { return a.current.Load() }

// LastFailure returns the time and error of the last completed certificate request, if that request failed. Both
// results are zero if the request succeeded, or if no request has completed. A request that fails after the context of
// Run has ended does not count.
func (a *Agent) LastFailure() (time.Time, error) {
	if f := a.lastFail.Load(); f != nil {
		return f.at, f.err
	}
	return time.Time{}, nil
}

// FileFaults lists those secrets that Envoy requests by file paths and that cannot be served from the present files.
// The list is sorted by name, and nil if there are no such secrets. Secrets that the agent ignores because Envoy
// requests too many are not listed.
func (a *Agent) FileFaults() []FileFault { return a.hub.files.faults() }

// Renew requests another certificate and does not wait for it. If a request is under way, another one follows.
// Several calls count as one call until Run handles the first of them.
func (a *Agent) Renew() {
	select {
	case a.force <- struct{}{}:
	default:
	}
}

// renewals requests certificates at the times that a schedule returns, and reads RootFile periodically. It returns nil
// when ctx ends.
func (a *Agent) renewals(ctx context.Context) error {
	s := &schedule{at: a.cfg.RenewAt, jitter: a.cfg.Jitter, token: a.cfg.TokenFile != ""}
	results := make(chan event, 1)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	poll := time.NewTicker(a.cfg.RootPoll)
	defer poll.Stop()
	step := func(e event) {
		for _, f := range s.Step(time.Now(), rand.Float64(), e) {
			switch f := f.(type) {
			case ask:
				go func() { results <- a.obtain(ctx, f.with) }()
			case wakeAt:
				timer.Reset(time.Until(f.at))
			}
		}
	}
	a.readRoots()
	step(begin{})
	for {
		select {
		case e := <-results:
			step(e)
		case <-timer.C:
			step(due{})
		case <-a.force:
			step(renew{})
		case <-poll.C:
			a.readRoots()
		case <-ctx.Done():
			return nil
		}
	}
}

// obtain makes a key, requests a certificate and publishes key and certificate. After a failure the previous
// certificate stays in use.
func (a *Agent) obtain(ctx context.Context, with credential) event {
	if a.current.Load() == nil {
		a.readRoots()
	}
	id, key, roots, err := a.certify(ctx, with)
	if err != nil {
		if ctx.Err() == nil {
			a.lastFail.Store(&failure{time.Now(), err})
			a.cfg.Log.Warn("certificate request failed; the current certificate stays", "by", with.String(), "expires", a.expiry(), "error", err)
		}
		return failed{}
	}
	a.lastFail.Store(nil)
	a.mu.Lock() // publish must not see the certificate without its key
	first := a.current.Swap(id) == nil
	a.trust[fromCA], a.key = roots, key
	a.mu.Unlock()
	a.publish()
	a.cfg.Log.Info("certificate in use", "identity", id.URI, "serial", id.Serial, "notAfter", id.NotAfter, "by", with.String())
	if first {
		close(a.ready)
	}
	return issued{id.NotAfter}
}

func (a *Agent) expiry() string {
	if id := a.current.Load(); id != nil {
		return id.NotAfter.Format(time.RFC3339)
	}
	return "no certificate yet"
}
