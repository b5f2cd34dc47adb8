package keyring

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/store/clock"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// Errors that callers distinguish.
var (
	// ErrNotLoaded: this replica has not read the keyring from etcd yet. It is also the error if etcd has no keyring,
	// and this replica does not create one (Config.Leads).
	ErrNotLoaded = errors.New("the keyring is not loaded yet")
	// ErrRolledBack: this replica or a peer remembers a keyring that is newer than the one in etcd, or that differs
	// from it at the same version. A missing keyring counts as older. The replica refuses the keyring in etcd
	// (State.Alarm). To use a restored backup, stop all replicas, remove keyring.json from each data directory, and
	// start the replicas again.
	ErrRolledBack = errors.New("the keyring in etcd was turned back")
	// ErrStale: the certificate was signed under an outdated State. Since then another epoch (signing certificate)
	// became active, or a root was published. Sign again with the newest State.
	ErrStale = errors.New("the keyring has moved on")
	// ErrRevoked: the identity, or the certificate to renew, is revoked.
	ErrRevoked = errors.New("the identity is revoked")
	// ErrRotating: an epoch is prepared already, and waits to sign. Abort the rotation, force it, or wait.
	ErrRotating = errors.New("a rotation is under way")
	// ErrNoRotation: no epoch is prepared.
	ErrNoRotation = errors.New("there is no rotation to abort or force")
)

// Config configures a Keyring. Store, Sealer, Mesh and TrustDomain are required.
type Config struct {
	Store       *kv.Store
	Sealer      seal.Sealer // encrypts the signing keys under the key encryption key
	Mesh        string      // the mesh's name; sealed values of another mesh do not open
	TrustDomain spiffeid.TrustDomain
	// Dir is the data directory, which New creates. It stores the sealed keyring, the allowance, and the digest of the
	// newest verified record. A record is the keyring without its keys. If Dir is empty, nothing is stored, and there
	// is no allowance.
	Dir string
	// CACerts is the source of the user's own CA. The keyring reads the source again after each read of etcd. A new CA
	// certificate becomes an epoch, and its key is stored in etcd, encrypted. If CACerts is nil or has no CA, the
	// keyring makes its own roots.
	CACerts CASource
	RootTTL time.Duration // lifetime of roots that the keyring makes; 0: 10 years
	// MaxRevoked bounds the revoked certificates of all issuers together, and thereby the size of the revocation lists.
	// Each entry takes 36 bytes on the wire to each proxy. Envoy keeps 54 bytes for each entry in each TLS context
	// (cluster or listener). With 1,000 entries, a sidecar with 2,000 clusters needs 108 MB for them. 0 means 1,000.
	// The maximum is 5,000.
	MaxRevoked int
	// IdentityBytes is each identity's quota in the journal of issued certificates, in bytes. Each replica counts for
	// itself. One origin (Issue.Origin) may use a sixteenth of the quota. Entries beyond a quota are aggregated
	// (Issue.Many). 0: 32 MiB.
	IdentityBytes int
	// Allowance is the number of renewals that this replica may issue while etcd is away. If Allowance is 0 or Dir is
	// empty, it may issue no renewal.
	Allowance int
	Every     time.Duration // pause between reads of etcd, CACerts and Leads; a change in etcd ends the pause; 0: 5 s
	Retry     time.Duration // longest pause after a failure; 0: 15 s
	Answer    time.Duration // timeout for reading the keyring from etcd, after which etcd counts as away; 0: 5 s
	// Peers sends a nonce to the other replicas, and returns the answers that they made with Seen. An error joins the
	// failures of single replicas; the answers of the others are returned too. The context ends after 5 s. A starting
	// replica calls Peers once before it trusts etcd. If etcd was rolled back, a running peer remembers a newer record.
	// If no peer answers, the replica continues, so that the first replica of a mesh can start. It calls Peers again
	// after each pause (PeersEvery). nil: there are no peers.
	Peers      func(ctx context.Context, nonce []byte) ([][]byte, error)
	PeersEvery time.Duration // longest pause between calls of Peers; shorter until a peer has answered; 0: 1 min
	// Roots returns the roots that State.Claimed may have. A replica uses Claimed until it has verified the keyring for
	// the first time. Until then the keyring calls Roots for each new State. After an error, or if Roots returns no
	// root, Claimed is empty. If Roots is nil, Claimed may have the roots remembered in Dir. If no roots are remembered
	// either, Claimed has all roots in etcd.
	Roots func() ([]*x509.Certificate, error)
	// Leads reports whether this replica maintains the keyring. A replica that leads creates a missing keyring,
	// prepares new epochs, ends rotations, prunes the journal, and records its allowance. It also encrypts the keyring
	// again after a rotation of the key encryption key. Several replicas may lead. Each transaction compares the
	// record's revision, so only one of several competing changes is written. Leads must be safe for concurrent use.
	// nil: the replica always leads.
	Leads  func() bool
	Logger *slog.Logger     // nil: slog's default
	Now    func() time.Time // nil: time.Now
	// Clock reports whether Now can be trusted. While Now is not trusted, this replica neither changes the record nor
	// prunes the journal. nil: Now is always trusted.
	Clock Clock
}

// Clock is the part of store/clock's Clock that the keyring uses. It must be safe for concurrent use.
type Clock interface {
	Off() error                // the reason not to trust this machine's time; nil: it is trusted
	Sure() (time.Time, error)  // a time that has certainly passed, for expiry and pruning; returns the error of Off
	Compared() <-chan struct{} // returns a channel that is closed once the other clocks have been read
	Word() clock.Word          // this process's clock report for a peer
	// Heard stores a peer's clock report. roundTrip is the duration of the request for the report.
	Heard(w clock.Word, roundTrip time.Duration)
}

// believed is the Clock of a process that always trusts its own time.
type believed func() time.Time

func (believed) Off() error                      { return nil }
func (believed) Word() clock.Word                { return clock.Word{} }
func (believed) Heard(clock.Word, time.Duration) {}
func (b believed) Sure() (time.Time, error)      { return b(), nil }
func (believed) Compared() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// complete validates the fields and sets defaults. Errors: a required field is missing, a duration is negative, or
// MaxRevoked is out of bounds.
func (c *Config) complete() error {
	switch {
	case c.Store == nil || c.Sealer == nil:
		return errors.New("keyring: a store and a sealer are needed")
	case c.Mesh == "" || c.TrustDomain.IsZero():
		return errors.New("keyring: mesh and trust domain are needed")
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&c.RootTTL, 10 * 365 * 24 * time.Hour}, {&c.Every, 5 * time.Second},
		{&c.Retry, 15 * time.Second}, {&c.Answer, 5 * time.Second}, {&c.PeersEvery, time.Minute}} {
		if *d.value = cmp.Or(*d.value, d.def); *d.value < 0 {
			return fmt.Errorf("keyring: duration %v is negative", *d.value)
		}
	}
	if c.MaxRevoked = cmp.Or(c.MaxRevoked, 1000); c.MaxRevoked < 0 || c.MaxRevoked > maxRevoked {
		return fmt.Errorf("keyring: MaxRevoked is %d, must be 1 to %d", c.MaxRevoked, maxRevoked)
	}
	c.IdentityBytes = cmp.Or(c.IdentityBytes, identityBytes)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Leads == nil {
		c.Leads = func() bool { return true }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Clock == nil {
		c.Clock = believed(c.Now)
	}
	return nil
}

// Keyring keeps one replica's copy of the mesh's signing keys, and changes the keys in etcd. Safe for concurrent use.
type Keyring struct {
	cfg         Config
	log         *slog.Logger
	current     atomic.Pointer[published]
	jobs        chan job
	entries     chan *entry
	reports     *lru.Cache[report, struct{}] // reports of holders that are journalled, or are being journalled
	quota       *journalQuota
	seeded      chan struct{}          // closed once quota has counted the journal's entries
	seen        atomic.Pointer[memory] // copy of mem, for peers
	peersMemory atomic.Pointer[memory] // the newest record that a peer remembers
	peersAsked  chan struct{}          // closed once the first round of Peers has ended
	nudge       chan struct{}          // buffered (1): receives after peersMemory has become newer
	allowances  *allowanceFile
	away        atomic.Bool  // the last read of the keyring from etcd failed
	oldest      atomic.Int64 // arrival of the oldest entry in the transaction under way, Unix ns; 0: none
	waiting     atomic.Int64 // holders that a rotation waits for
	peers       atomic.Int64 // number of answers in the last round of Peers

	// Only the goroutine of the method loop uses the fields below.
	mem       memory
	saved     string        // digest of the keyring file that this process wrote last
	minimum   memory        // peersMemory as it was before the last read of etcd
	ring      *ring         // the keyring in use; nil: no keyring could be read and verified
	trouble   error         // the reason not to use the keyring in etcd; nil: it is used, or was not read yet
	index     *journalIndex // the journal as read so far; nil: the next reader reads all of it
	adopted   [32]byte      // digest of the user's CA that was adopted last
	pruned    time.Time
	resealed  time.Time
	resealing error  // error of the last check for a rotated key encryption key
	logged    string // the last logged error; empty: none
}

// published is a State, with the revision of the record in etcd (keys/state). Journal transactions compare this
// revision.
type published struct {
	state *State
	fence int64
	gone  chan struct{} // closed when another State replaces this one
}

type job struct {
	do   func(context.Context) error
	done chan error
}

// New returns a Keyring, after reading the remembered record (keyring.json) and the allowance from the data directory.
// New sends nothing to etcd. Errors: a required field is missing, a duration is negative, MaxRevoked is out of bounds,
// or the directory cannot be created. It is also an error if keyring.json cannot be read, or belongs to another mesh or
// trust domain. An allowance file that cannot be used is logged and renamed, without an error.
func New(cfg Config) (*Keyring, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("keyring: %w", err)
		}
	}
	mem, err := recall(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if mem.Version > 0 && (mem.Mesh != cfg.Mesh || mem.TrustDomain != cfg.TrustDomain.Name()) {
		return nil, fmt.Errorf("keyring: %s remembers mesh %q, trust domain %q; this is mesh %q, trust domain %q",
			filepath.Join(cfg.Dir, memoryFile), mem.Mesh, mem.TrustDomain, cfg.Mesh, cfg.TrustDomain.Name())
	}
	reports, err := lru.New[report, struct{}](reportsKnown)
	if err != nil {
		return nil, err
	}
	k := &Keyring{cfg: cfg, log: cfg.Logger, mem: mem, reports: reports, quota: newJournalQuota(cfg.IdentityBytes),
		seeded: make(chan struct{}), allowances: readAllowance(cfg.Dir, cfg.Logger), jobs: make(chan job), entries: make(chan *entry, maxBatch),
		peersAsked: make(chan struct{}), nudge: make(chan struct{}, 1)}
	k.seen.Store(&mem)
	k.peersMemory.Store(&memory{})
	k.current.Store(&published{state: &State{Sealed: ErrNotLoaded}, gone: make(chan struct{})})
	return k, nil
}

// State returns the keyring that this replica may use now; never nil. Before the first read of etcd, State.Sealed
// matches ErrNotLoaded.
func (k *Keyring) State() *State { return k.current.Load().state }

// ClockOff returns the error of Config.Clock while this machine's clock cannot be trusted, else nil. State.Active does
// not depend on the clock, so callers check both before they sign.
func (k *Keyring) ClockOff() error { return k.cfg.Clock.Off() }

// Changed returns a channel that is closed when another State replaces the present one. To miss no change, call
// Changed, then State, then wait for the channel. The next State may have the same content.
func (k *Keyring) Changed() <-chan struct{} { return k.current.Load().gone }

// show replaces the present State. Only the goroutine of loop calls it.
func (k *Keyring) show(s *State, fence int64) {
	close(k.current.Swap(&published{state: s, fence: fence, gone: make(chan struct{})}).gone)
}

// Run maintains the keyring in three goroutines until ctx ends, and then returns nil. Call Run once. If one of the
// goroutines fails or panics, Run ends earlier and returns that goroutine's error. Append, Held, Rotate, Abort, Status,
// Revoke and Restore depend on Run: without it they block until their contexts end.
func (k *Keyring) Run(ctx context.Context) error {
	return loop.Run(ctx, loop.Task{Name: "keyring", Run: k.loop},
		loop.Task{Name: "journal", Run: k.journal}, loop.Task{Name: "peers", Run: k.pollPeers})
}

func (k *Keyring) loop(ctx context.Context) error {
	changed, err := k.cfg.Store.BlobsChanged(ctx, keysFolder)
	if err != nil {
		return err
	}
	select {
	case <-k.peersAsked:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-k.cfg.Clock.Compared():
	case <-time.After(time.Second): // etcd is probably away; refresh then uses the keyring on disk
	case <-ctx.Done():
		return ctx.Err()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := time.Duration(0)
	for {
		var asked *job
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-k.nudge:
		case <-timer.C:
		case j := <-k.jobs:
			asked = &j
		}
		err := k.refreshAndAdvance(ctx)
		k.logResult(err) // before the reply, so that callers find the reason in the log
		if asked != nil {
			asked.done <- asked.do(ctx)
		}
		if err == nil {
			pause = 0
			timer.Reset(k.cfg.Every)
		} else {
			pause = min(max(2*pause, k.cfg.Retry/64), k.cfg.Retry)
			timer.Reset(pause/2 + rand.N(pause/2+1))
		}
	}
}

// logResult logs an error if its text differs from that of the previous error. It also logs when errors end.
func (k *Keyring) logResult(err error) {
	text := ""
	// These two errors end by themselves shortly after the start.
	if err != nil && !errors.Is(err, clock.ErrNotCompared) && !errors.Is(err, ErrNotRead) {
		text = err.Error()
	}
	switch {
	case text == k.logged:
	case err != nil:
		k.log.Warn("keyring cannot be read or advanced, trying again", slog.Any(obs.KeyError, err))
	default:
		k.log.Info("keyring can be read and advanced again")
	}
	k.logged = text
}

// refreshAndAdvance reads the keyring from etcd and performs the changes that are due.
func (k *Keyring) refreshAndAdvance(ctx context.Context) error {
	if err := k.refresh(ctx); err != nil {
		return err
	}
	err := k.readCACerts(ctx)
	if !k.cfg.Leads() {
		return err
	}
	if off := k.clockOff(); off != nil {
		err = errors.Join(err, off)
	} else {
		err = errors.Join(err, k.renewAllowance(ctx), k.advance(ctx), k.prune(ctx))
	}
	k.reseal(ctx)
	return err
}

// ask passes the function do to the goroutine of the method loop, which calls it after a refresh. ask returns the error
// of do. Only that goroutine may use the data that do needs. If ctx ends first, ask returns the error of ctx, and do
// may still run.
func (k *Keyring) ask(ctx context.Context, do func(context.Context) error) error {
	j := job{do: do, done: make(chan error, 1)}
	select {
	case k.jobs <- j:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
