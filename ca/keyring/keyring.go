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
	// ErrNotLoaded: the keyring has not been read from etcd yet.
	ErrNotLoaded = errors.New("the keyring is not loaded yet")
	// ErrRolledBack: etcd holds an older keyring than this replica remembers. The previous keyring stays in force. If
	// an operator restored a backup on purpose, keyring.json must be removed from each data directory and the replicas
	// restarted.
	ErrRolledBack = errors.New("the keyring in etcd was turned back")
	// ErrStale: another epoch signs now, or a root was published meanwhile. Sign again.
	ErrStale = errors.New("the keyring has moved on")
	// ErrRevoked: the identity gets no certificates.
	ErrRevoked = errors.New("the identity is revoked")
	// ErrRotating: a rotation is under way; abort it, or let it end.
	ErrRotating = errors.New("a rotation is under way")
	// ErrNoRotation: no rotation waits for its new epoch to sign.
	ErrNoRotation = errors.New("there is no rotation to abort or force")
)

// Config of a Keyring. Store, Sealer, Mesh and TrustDomain are required.
type Config struct {
	Store       *kv.Store
	Sealer      seal.Sealer
	Mesh        string
	TrustDomain spiffeid.TrustDomain
	// Dir is the data directory, which stores the newest known record. Empty: the record is kept in memory only.
	Dir string
	// CACerts is the source of the user's own CA. It is read again each time it changes, and its key is sealed into
	// etcd. nil: roots are made here.
	CACerts CASource
	RootTTL time.Duration // of roots made here; 0: 10 years
	// MaxRevoked bounds the revoked certificates, and with them the revocation lists. Each entry takes 36 bytes on the
	// wire to each proxy. Envoy was measured to keep 54 bytes for each entry and TLS context (cluster or listener):
	// 1,000 entries cost a sidecar with 2,000 clusters 108 MB. 0: 1,000; at most 5,000.
	MaxRevoked int
	// IdentityBytes is one identity's quota of this replica's journal entries. Beyond it entries are aggregated. 0: 32
	// MiB.
	IdentityBytes int
	// Allowance is the number of renewals that this replica may issue while etcd is away; it requires Dir. 0: none.
	Allowance int
	Every     time.Duration // between two reads of clock, CACerts and Leads; 0: 5 s
	Retry     time.Duration // longest pause after a failure; 0: 15 s
	Answer    time.Duration // timeout of a request to etcd, after which etcd counts as away; 0: 5 s
	// Peers sends a nonce to the other replicas and returns their answers (Seen). The error joins those of replicas
	// that did not answer. A starting replica calls Peers once before it trusts etcd, since running replicas remember a
	// newer record if etcd was set back; later it calls Peers every PeersEvery. Without any answer it continues, so
	// that the first replica of a mesh can start. nil: no peers are asked.
	Peers      func(ctx context.Context, nonce []byte) ([][]byte, error)
	PeersEvery time.Duration // 0: 1 min
	// Roots returns the only roots that a replica trusts (State.Claimed) until it has unsealed for the first time. It
	// is called each time. nil: the remembered roots, or else those in etcd.
	Roots func() ([]*x509.Certificate, error)
	// Leads reports whether this replica creates the first keyring, ends rotations and prunes the journal. nil: always.
	// More than one such replica is safe: transactions compare the record, and the losers' work is discarded.
	Leads  func() bool
	Logger *slog.Logger // nil: slog's default
	Now    func() time.Time
	// Clock reports whether Now can be trusted. While it cannot, the keyring is not changed and the journal not pruned.
	// nil: always.
	Clock Clock
}

// Clock is the part of store/clock that the keyring uses.
type Clock interface {
	Off() error                // nil: the time of this machine can be trusted
	Sure() (time.Time, error)  // a time that has certainly passed
	Compared() <-chan struct{} // closed once Off has compared clocks
	// Word is this process's clock report for a peer. Heard takes a peer's report and the duration of that request.
	Word() clock.Word
	Heard(w clock.Word, roundTrip time.Duration)
}

// believed is the Clock of a process that compares its clock with no other.
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

// complete sets the defaults. The error names a field that is missing or out of bounds.
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

// Keyring is one replica's copy of the keyring. Safe for concurrent use.
type Keyring struct {
	cfg         Config
	log         *slog.Logger
	current     atomic.Pointer[published]
	jobs        chan job
	entries     chan *entry
	reports     *lru.Cache[report, struct{}] // reports that are journalled or under way
	quota       *journalQuota
	seeded      chan struct{}          // closed once quota has counted the journal's entries
	seen        atomic.Pointer[memory] // copy of mem, for peers
	peersMemory atomic.Pointer[memory] // the newest record that a peer remembers
	peersAsked  chan struct{}          // closed once all peers were asked
	nudge       chan struct{}          // buffered, 1: peersMemory is newer
	allowances  *allowanceFile
	away        atomic.Bool  // the last request to etcd failed
	oldest      atomic.Int64 // arrival of the oldest entry in the transaction under way, Unix ns; 0: none
	waiting     atomic.Int64 // holders that a rotation waits for
	peers       atomic.Int64 // number of peers that answered last

	// The loop owns the fields below.
	mem       memory
	saved     string // digest of the file on disk, as this process wrote it
	minimum   memory // peersMemory as of before the last read of etcd
	ring      *ring  // nil: the keyring in etcd cannot be used; trouble has the reason
	trouble   error
	index     *journalIndex // nil: no rotation or revocation needs it
	adopted   [32]byte
	pruned    time.Time
	resealed  time.Time
	resealing error // error of the last check for a rotated key encryption key
	logged    string
}

// published is a State and the revision of its record.
type published struct {
	state *State
	fence int64
	gone  chan struct{} // closed when another State replaces this one
}

type job struct {
	do   func(context.Context) error
	done chan error
}

// New checks the configuration and reads the data directory. It sends nothing to etcd. Errors: a required field is
// missing, a stored file cannot be read, or the directory belongs to another mesh.
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

// State returns the keyring that this replica may use now; never nil.
func (k *Keyring) State() *State { return k.current.Load().state }

// ClockOff returns why this machine's clock cannot be trusted; nil: it can. A replica without a trusted clock signs
// nothing.
func (k *Keyring) ClockOff() error { return k.cfg.Clock.Off() }

// Changed returns a channel that is closed when State returns another State than at the time of this call. Call
// Changed, then State, then wait. A new State may have the same content.
func (k *Keyring) Changed() <-chan struct{} { return k.current.Load().gone }

// show puts a State in force. Only the loop calls it.
func (k *Keyring) show(s *State, fence int64) {
	close(k.current.Swap(&published{state: s, fence: fence, gone: make(chan struct{})}).gone)
}

// Run maintains the keyring until ctx ends. It returns the error of the first of its loops to end, or that of ctx.
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
	case <-time.After(time.Second): // etcd is away: refresh uses the keyring on disk
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
		k.logResult(err) // before the reply: callers find the reason in the log
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

// logResult logs a trouble once, and its end.
func (k *Keyring) logResult(err error) {
	text := ""
	// Clocks that are not compared yet, and a CA that is not read yet, are about to be.
	if err != nil && !errors.Is(err, clock.ErrNotCompared) && !errors.Is(err, ErrNotRead) {
		text = err.Error()
	}
	switch {
	case text == k.logged:
	case err != nil:
		k.log.Warn("keyring: it cannot be read or advanced, trying again", slog.Any(obs.KeyError, err))
	default:
		k.log.Info("keyring: it can be read and advanced again")
	}
	k.logged = text
}

// refreshAndAdvance reads etcd and performs the changes that are due.
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

// ask runs do in the loop, which owns the data that do reads.
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
