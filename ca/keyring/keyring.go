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

// What callers decide by.
var (
	// ErrNotLoaded: the keyring has not been read from etcd yet.
	ErrNotLoaded = errors.New("the keyring is not loaded yet")
	// ErrRolledBack: etcd holds an older keyring than this replica remembers. What was in force stays. Where an operator
	// meant it (a backup was restored), keyring.json is removed from each data directory and the replicas are restarted.
	ErrRolledBack = errors.New("the keyring in etcd was turned back")
	// ErrStale: another epoch signs by now, or a root was published meanwhile. Sign again.
	ErrStale = errors.New("the keyring has moved on")
	// ErrRevoked: the identity gets no certificates any more.
	ErrRevoked = errors.New("the identity is revoked")
	// ErrRotating: a rotation is under way; abort it, or let it end.
	ErrRotating = errors.New("a rotation is under way")
	// ErrNoRotation: there is no rotation that has not switched yet.
	ErrNoRotation = errors.New("there is no rotation to abort or force")
)

// Config of a Keyring. Store, Sealer, Mesh and TrustDomain are required.
type Config struct {
	Store       *kv.Store
	Sealer      seal.Sealer
	Mesh        string
	TrustDomain spiffeid.TrustDomain
	// Dir is the data directory, where the newest record is remembered; empty: in memory only.
	Dir string
	// CACerts is where the user's own CA is. It is read again each time it changes. Its key is sealed into etcd like others. nil: there is
	// none, and roots are made here.
	CACerts CASource
	RootTTL time.Duration // of roots made here; 0: 10 years
	// MaxRevoked bounds the revoked certificates, and with them the revocation lists: 36 bytes for each entry on the wire to
	// each proxy, and, measured, 54 bytes in Envoy's memory for each entry and each TLS context (cluster or listener), so
	// that 1,000 entries cost a sidecar with 2,000 clusters 108 MB. 0: 1,000; at most 5,000.
	MaxRevoked int
	// IdentityBytes is how much of the journal this replica lets one identity have before what it issues to it is no longer journalled one
	// by one. 0: 32 MiB.
	IdentityBytes int
	// Allowance is how many renewals this replica may issue while etcd is away; it needs Dir. 0: none.
	Allowance int
	Every     time.Duration // between two looks at clock, cacerts and gate; 0: 5 s
	Retry     time.Duration // longest pause after a failure; 0: 15 s
	Answer    time.Duration // etcd is away when it takes longer to answer; 0: 5 s
	// Peers gives a nonce to the other replicas and returns their answers (Seen), with the errors of those that gave none. A
	// replica that has just started calls it once before it trusts what etcd holds, since replicas that run remember a newer record where etcd was set
	// back; later it calls it from time to time. Where no replica answers it goes on without: else the first replica of a mesh could not start. nil:
	// nobody is asked.
	Peers      func(ctx context.Context, nonce []byte) ([][]byte, error)
	PeersEvery time.Duration // 0: 1 min
	// Roots are the only ones that a replica believes (State.Claimed) which has not been able to unseal since its start; it is
	// asked each time. nil: those that it remembers, or whatever etcd holds.
	Roots func() ([]*x509.Certificate, error)
	// Leads says whether this replica is the one that makes the first keyring, ends rotations and prunes the journal; nil: it is.
	// It is safe if several replicas do, since transactions compare the record; their work is lost.
	Leads  func() bool
	Logger *slog.Logger // nil: slog's default
	Now    func() time.Time
	// Clock says whether Now can be believed: the keyring is not changed, and nothing of the journal pruned, while it cannot. nil: it can.
	Clock Clock
}

// Clock is what the keyring needs of store/clock.
type Clock interface {
	Off() error                // nil: the time of this machine can be believed
	Sure() (time.Time, error)  // a time that has come for certain
	Compared() <-chan struct{} // closed once Off knows
	// Word is what this process says of its clock to a peer that asks; Heard takes a peer's, and how long the answer took.
	Word() clock.Word
	Heard(w clock.Word, roundTrip time.Duration)
}

// believed is the Clock of a process that compares its own with nobody's.
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

// complete sets the defaults. The error names what is missing, or out of bounds.
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
	}{{&c.RootTTL, 10 * 365 * 24 * time.Hour}, {&c.Every, 5 * time.Second}, {&c.Retry, 15 * time.Second}, {&c.Answer, 5 * time.Second}, {&c.PeersEvery, time.Minute}} {
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

// Keyring is one replica's. Safe for concurrent use.
type Keyring struct {
	cfg         Config
	log         *slog.Logger
	current     atomic.Pointer[published]
	jobs        chan job
	entries     chan *entry
	reports     *lru.Cache[report, struct{}] // that were journalled, or are being
	tally       *tally
	seeded      chan struct{}          // closed once the tally has what the journal had
	seen        atomic.Pointer[memory] // what mem is, for peers
	peersMemory atomic.Pointer[memory] // the newest that a peer remembers
	heard       chan struct{}          // closed once peers were asked
	nudge       chan struct{}          // of one: minimum is higher
	allowances  *spender
	away        atomic.Bool  // etcd did not answer the last look
	oldest      atomic.Int64 // when the oldest entry in the transaction under way came, Unix ns; 0: none is
	waiting     atomic.Int64 // holders that a rotation waits for
	peers       atomic.Int64 // that answered last

	// The rest is owned by the loop.
	mem       memory
	saved     string // digest of the file on disk, as this process wrote it
	minimum   memory // minimum, as it was before etcd was read last
	ring      *ring  // nil: what etcd holds cannot be used, trouble says why
	trouble   error
	census    *census // nil: nobody asks
	adopted   [32]byte
	pruned    time.Time
	resealed  time.Time
	resealing error // of the last look at the key encryption key
	said      string
}

// published is a State and the revision of the record that it stands for.
type published struct {
	state *State
	fence int64
	gone  chan struct{} // closed when another has taken its place
}

type job struct {
	do   func(context.Context) error
	done chan error
}

// New checks the configuration and reads what is remembered. It does not ask etcd. An error says what is missing, or that what is remembered cannot be read or is another mesh's.
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
	k := &Keyring{cfg: cfg, log: cfg.Logger, mem: mem, reports: reports, tally: newTally(cfg.IdentityBytes), seeded: make(chan struct{}), allowances: recallAllowance(cfg.Dir, cfg.Logger), jobs: make(chan job), entries: make(chan *entry, maxBatch),
		heard: make(chan struct{}), nudge: make(chan struct{}, 1)}
	k.seen.Store(&mem)
	k.peersMemory.Store(&memory{})
	k.current.Store(&published{state: &State{Sealed: ErrNotLoaded}, gone: make(chan struct{})})
	return k, nil
}

// State is what this replica may use now; never nil.
func (k *Keyring) State() *State { return k.current.Load().state }

// ClockOff is nil while this machine's clock can be believed; a replica where it cannot signs nothing.
func (k *Keyring) ClockOff() error { return k.cfg.Clock.Off() }

// Changed is closed when State returns another one than at the time of the call: ask for the channel first, then for the
// State, then wait. What is looked at often in vain may have the same content.
func (k *Keyring) Changed() <-chan struct{} { return k.current.Load().gone }

// show puts a State in force. It is called by the loop only.
func (k *Keyring) show(s *State, fence int64) {
	close(k.current.Swap(&published{state: s, fence: fence, gone: make(chan struct{})}).gone)
}

// Run keeps the keyring until the context ends. Its error is that of the first of its loops that ends, else the context's.
func (k *Keyring) Run(ctx context.Context) error {
	return loop.Run(ctx, loop.Task{Name: "keyring", Run: k.loop}, loop.Task{Name: "journal", Run: k.journal}, loop.Task{Name: "peers", Run: k.listen})
}

func (k *Keyring) loop(ctx context.Context) error {
	changed, err := k.cfg.Store.BlobsChanged(ctx, keysFolder)
	if err != nil {
		return err
	}
	select {
	case <-k.heard:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-k.cfg.Clock.Compared():
	case <-time.After(time.Second): // etcd is away: what is on disk is shown
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
		err := k.turn(ctx)
		k.say(err) // before the answer: who asked may look for the reason in the log
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

// say logs a trouble once, and its end.
func (k *Keyring) say(err error) {
	text := ""
	if err != nil && !errors.Is(err, clock.ErrNotCompared) && !errors.Is(err, ErrNotRead) { // in an instant it is, or the other trouble is said
		text = err.Error()
	}
	switch {
	case text == k.said:
	case err != nil:
		k.log.Warn("keyring: it cannot be read or advanced, trying again", slog.Any(obs.KeyError, err))
	default:
		k.log.Info("keyring: it can be read and advanced again")
	}
	k.said = text
}

// turn looks at etcd and the clock once.
func (k *Keyring) turn(ctx context.Context) error {
	if err := k.look(ctx); err != nil {
		return err
	}
	err := k.readCACerts(ctx)
	if !k.cfg.Leads() {
		return err
	}
	if off := k.clockOff(); off != nil {
		err = errors.Join(err, off)
	} else {
		err = errors.Join(err, k.allow(ctx), k.advance(ctx), k.prune(ctx))
	}
	k.reseal(ctx)
	return err
}

// ask runs something in the loop, which owns what it reads.
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
