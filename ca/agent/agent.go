// Package agent is the identity half of navarch-agent: it makes a key, has it certified, hands both to Envoy by SDS over a Unix socket, and
// renews them in time. Over the same socket it serves Envoy the certificates, keys and CA certificates that the proxy's configuration names as
// files of the proxy.
//
// Owns: the private key, in memory; the SDS socket.  Reads: the token file and the root file, again each time; the files that Envoy names.  Never: logs
// or sends key material; asks a CA that it cannot verify; gives up a certificate before it has the next.
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

// Config of an Agent.
type Config struct {
	Address    string // of the CA, host:port
	ServerName string // in the CA's certificate; empty: the host of Address
	// RootFile is the mesh's root certificates (PEM), read again every RootPoll, in which files of secrets are looked at too; Roots are some that are always there. One of
	// the two is required.
	RootFile string
	Roots    []byte
	RootPoll time.Duration // 10 s
	// TokenFile is read for each request by token. Empty: only renewals work, so a first certificate never comes.
	TokenFile string
	// Name is the identity that CSRs name, for signers that take it from there; the zero ID: none is named. A CA that takes the identity
	// from the credential refuses a CSR that names another one.
	Name     spiffeid.ID
	TTL      time.Duration     // asked for; 0: what the CA gives
	Metadata map[string]string // of requests: ClusterID and the like

	// Socket is where SDS is served; empty: it is not. Whoever may connect gets the key: that is the user of this process, as
	// which Envoy runs, and nobody else. Refused is told of others; nil: nobody is.
	Socket    string
	Refused   func(socket.Peer)
	OutputDir string // OUTPUT_CERTS: files are written there; empty: none

	RenewAt float64 // part of the life of a certificate after which it is renewed: 0.5
	Jitter  float64 // of that, either way: 0.1

	Log *slog.Logger // nil: slog.Default()

	sign   func(ctx context.Context, csr []byte, with credential) ([]string, error) // tests
	held   func(roots []string)                                                     // tests
	report func(ctx context.Context, roots []string) error
}

// Agent holds one workload's identity. Its methods may be called from any goroutine.
type Agent struct {
	cfg      Config
	current  atomic.Pointer[Identity]
	hub      *hub
	force    chan struct{}
	ready    chan struct{}
	held     chan []string // of one: the newest set that Envoy acknowledged
	lastFail atomic.Pointer[failure]

	mu    sync.Mutex // of trust; a leaf
	trust map[source][]*x509.Certificate
	crls  lists  // for Envoy
	key   keyPEM // of current, for SDS and files
	out   *output
}

type failure struct {
	at  time.Time
	err error
}

// New checks the configuration and starts nothing. Errors: fields that are missing or out of range, all of them at once, and roots that are not PEM.
func New(cfg Config) (*Agent, error) {
	var bad []error
	if cfg.Address == "" {
		bad = append(bad, errors.New("config.Address is empty"))
	}
	if cfg.RootFile == "" && len(cfg.Roots) == 0 {
		bad = append(bad, errors.New("neither config.RootFile nor config.Roots is set: the CA could not be verified"))
	}
	if cfg.RenewAt < 0 || cfg.RenewAt >= 1 || cfg.Jitter < 0 || cfg.Jitter >= 1 {
		bad = append(bad, fmt.Errorf("config.RenewAt %g and Jitter %g must be in [0, 1)", cfg.RenewAt, cfg.Jitter))
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

// Run serves and renews until ctx ends. An error before that means that the socket cannot be served.
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
	group.Go(func() error { return a.reports(ctx) })
	return group.Wait()
}

// Ready is closed once there is a certificate.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Identity is the certificate in use; nil before Ready. It does not change.
func (a *Agent) Identity() *Identity { return a.current.Load() }

// LastFailure is why the newest request failed, and when; nil once one has succeeded since.
func (a *Agent) LastFailure() (time.Time, error) {
	if f := a.lastFail.Load(); f != nil {
		return f.at, f.err
	}
	return time.Time{}, nil
}

// FileFaults are the secrets of files that Envoy asks for, and that are not served as the files are now; sorted by name.
func (a *Agent) FileFaults() []FileFault { return a.hub.files.faults() }

// Renew asks for a new certificate now.
func (a *Agent) Renew() {
	select {
	case a.force <- struct{}{}:
	default:
	}
}

// renewals is the loop around the schedule.
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

// obtain makes a key, asks, and publishes. What fails leaves everything as it was.
func (a *Agent) obtain(ctx context.Context, with credential) event {
	if a.current.Load() == nil {
		a.readRoots()
	}
	id, key, roots, err := a.certify(ctx, with)
	if err != nil {
		if ctx.Err() == nil {
			a.lastFail.Store(&failure{time.Now(), err})
			a.cfg.Log.Warn("no new certificate; the one in use stays", "by", with.String(), "expires", a.expiry(), "error", err)
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
	return "none is in use"
}
