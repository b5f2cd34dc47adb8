// Package quarantine decides which versions of resources are withheld from whole views because proxies refused them,
// and when a withheld version is sent to one proxy again, a retry.
//
// A version is withheld from the proxies of a view that run one version of Envoy, once a quorum of distinct identities
// with that Envoy refused it. Proxies of the view with another Envoy are then sent it one at a time, until one of them
// acknowledges it, or a quorum of their own refuses it.
//
// Withheld versions are retried, by one proxy at a time on each replica: first after Settings.Pause, and after each
// failed retry twice as long as before. A refused retry prolongs the withholding. A retry that ends without an answer,
// perhaps because the proxy crashed, only delays the next one. Each identity prolongs the withholding by retries and by
// its first refusal; repeated refusals without a retry have no effect. A version without a refusal for Settings.Keep is
// forgotten, and sent to all.
//
// One acknowledgement of a retry releases the version, with two exceptions, because one identity must not decide alone
// against others that refuse. The exceptions are an identity that refused the version itself, and every identity after
// a release that a quorum has contradicted by refusing again. These need acknowledgements of as many distinct
// identities as are needed to withhold, one retry after the other, without a refusal in between.
//
// Versions that the workloads of one identity refuse are withheld from that identity's proxies alone (Key.Identity), by
// the same rules: one credential there, such as that of a Pod, corresponds to one identity elsewhere. So a version that
// only the proxies of one service account refuse is withheld from them alone. A withholding from all proxies of the
// view takes precedence.
//
// Replicas exchange Reports, and each decides by the same rules. Withholding from one identity alone is decided by each
// replica from the answers of its own proxies.
//
// Owns: the refusals, the withheld versions, the retries in progress. Reads: push/xds. Never: a stream, etcd.
//
// # Replicas
//
// State is pure: reports go in, with their times, and decisions come out. Each replica keeps a leased list of its
// proxies' reports in refusals/ (push/quarantine/share) and follows the lists of the others. Identities in these lists
// are hashed. A report counts from the time at which it was made, so a list that is read again changes nothing. Each
// replica decides by itself, with or without etcd.
//
// Every second serve.Server searches for a stream that lacks a version whose retry is due. It sends released versions
// to the streams that lack them, to eight first and then to twice as many each second. Withheld versions are the
// exception to the promise that replicas send equal bytes.
package quarantine

import (
	"cmp"
	"crypto/sha256"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Key is one version of one resource in the proxies' configuration of one view.
type Key struct {
	View    string // serve.Proxy.ID, equal on all replicas
	Type    xds.Type
	Name    string
	Version string
	// Identity restricts the key to the proxies of one identity, a SPIFFE ID; empty: all proxies of the view.
	Identity string
}

// Covers reports whether the key applies to proxies of an identity.
func (k Key) Covers(identity string) bool { return k.Identity == "" || k.Identity == identity }

// Of returns the key restricted to one identity; to none if identity is empty.
func (k Key) Of(identity string) Key {
	k.Identity = identity
	return k
}

// Reporter identifies the author of an answer: a hash of an identity; for a Key with Identity, its Credential.
type Reporter [16]byte

// ReporterOf returns the Reporter of an identity (a SPIFFE ID). Without one, as on plain text, it is that of a node id.
func ReporterOf(identity, node string) Reporter {
	sum := sha256.Sum256([]byte(cmp.Or(identity, "node:"+node)))
	return Reporter(sum[:16])
}

// Credential is a hash of a credential of an identity.
type Credential [16]byte

// CredentialOf returns the Credential of an identity's credential; zero if it is empty, so that credentials are not
// distinguished.
func CredentialOf(identity, credential string) (c Credential) {
	if credential != "" {
		sum := sha256.Sum256([]byte(identity + "\x00" + credential))
		c = Credential(sum[:16])
	}
	return c
}

// Report is one proxy's answer to one version.
type Report struct {
	Key
	Reporter Reporter
	By       string // the SPIFFE ID of Reporter; empty: not authenticated
	// Credential distinguishes the credentials of one identity, so that no credential uses up the room of its identity. It
	// is zero if they are not distinguished, as in reports of other replicas.
	Credential Credential
	Envoy      string        // version of the proxy's Envoy; empty: not stated
	At         time.Time     // time of the answer; zero: now
	Accepted   bool          // the version was acknowledged; false: refused
	Retry      bool          // the version was sent to it as a retry
	Namespace  string        // of the proxy
	Text       string        // the proxy's message, cut
	Objects    []model.Place // the objects from which the resource was made, the likeliest cause first
}

// ofIdentity returns the same answer for the proxies of its own identity; false if their credentials are not
// distinguished.
func (r Report) ofIdentity() (Report, bool) {
	if r.By == "" || r.Credential == (Credential{}) {
		return r, false
	}
	r.Key, r.Reporter, r.Credential = r.Key.Of(r.By), Reporter(r.Credential), Credential{}
	return r, true
}

// Withheld is a version that is withheld from a view, or from the proxies of one identity in it (Key.Identity).
type Withheld struct {
	Key
	Namespace string   // of the view's proxies
	Envoys    []string // versions of Envoy from which it is withheld
	// RefusedBy counts the distinct identities (with Key.Identity: credentials) that refused it, up to maxReporters for
	// each version of Envoy.
	RefusedBy   int
	First, Last time.Time // refusals
	Next        time.Time // earliest time of the next retry on this replica
	Text        string    // message of the first proxy that gave one
	Objects     []model.Place
}

// Config configures a Quarantine. The zero Config is ready for use.
type Config struct {
	Settings
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: slog.Default()
	// Share receives each answer of this replica's proxies, for other replicas. The goroutine that reads the stream waits
	// for it. nil: answers are not shared.
	Share func(Report)
}

// Quarantine is a State for many goroutines, with a clock, a log and metrics.
type Quarantine struct {
	cfg    Config
	active atomic.Int32 // number of withheld versions; with 0 Withholds costs nothing

	mu    sync.RWMutex // a leaf: guards state
	state *State
}

// New returns a Quarantine without withheld versions.
func New(cfg Config) *Quarantine {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Quarantine{cfg: cfg, state: NewState(cfg.Settings)}
}

// WithheldFrom lists the versions that a stream of a view and an identity must not be sent; nil: none apply. Streams
// are numbered from 1. It is called before every response: it costs nothing while no version is withheld, and otherwise
// grows with the view's withheld versions.
func (q *Quarantine) WithheldFrom(view, identity, envoy string, stream uint64) []Key {
	if !q.Active() {
		return nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.WithheldFrom(view, identity, envoy, stream)
}

// Withholds reports whether a stream, numbered from 1, must not be sent a version. It costs nothing while no version is
// withheld, and does not allocate.
func (q *Quarantine) Withholds(k Key, envoy string, stream uint64) bool {
	if q.active.Load() == 0 {
		return false
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Withholds(k, envoy, stream)
}

// Active reports whether any version is withheld. It costs nothing.
func (q *Quarantine) Active() bool { return q.active.Load() > 0 }

// Report processes the answer of a proxy of this replica. An answer to a version that was withheld from its identity
// alone counts for that identity, any other for all and for its identity.
func (q *Quarantine) Report(stream uint64, r Report) {
	now := q.cfg.Now()
	if r.At.IsZero() || r.At.After(now) {
		r.At = now
	}
	own, counts := r.ofIdentity()
	forAll := r.Key.Identity == ""
	q.change(now, func() {
		if forAll {
			q.answered(&r, stream)
		}
		if counts {
			q.answered(&own, stream)
		}
	})
	switch {
	case r.Accepted:
		obs.QuarantineRetries.WithLabelValues("acknowledged").Inc()
	case r.Retry || own.Retry:
		obs.QuarantineRetries.WithLabelValues("refused").Inc()
	}
	if q.cfg.Share != nil && forAll {
		q.cfg.Share(r)
	}
}

// answered applies a report of a stream, which may answer a retry. The caller holds the lock.
func (q *Quarantine) answered(r *Report, stream uint64) {
	r.Retry = q.state.Answered(r.Key, r.Envoy, stream) || r.Accepted
	q.state.Apply(*r)
}

// Merge processes reports of other replicas. Known reports have no effect.
func (q *Quarantine) Merge(reports []Report) {
	now := q.cfg.Now()
	q.change(now, func() { q.state.Merge(now, reports) })
}

// Tick forgets expired state. Call it about every second.
func (q *Quarantine) Tick() {
	now := q.cfg.Now()
	q.mu.RLock()
	empty := q.state.Empty()
	q.mu.RUnlock()
	if !empty {
		q.change(now, func() { q.state.Tick(now) })
	}
}

// Due reports whether a proxy with a version of Envoy should be sent a version as a retry now.
func (q *Quarantine) Due(k Key, envoy string) bool {
	now := q.cfg.Now()
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Due(now, k, envoy)
}

// Suits returns how suitable a reporter is for a retry, from 0 (not at all) to Best.
func (q *Quarantine) Suits(k Key, envoy string, by Reporter) int {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Suits(k, envoy, by)
}

// Begin starts the retry of a version on a stream; false: the retry is no longer due.
func (q *Quarantine) Begin(k Key, envoy string, by Reporter, stream uint64) (begun bool) {
	now := q.cfg.Now()
	q.change(now, func() { begun = q.state.Begin(now, k, envoy, by, stream) })
	return begun
}

// Leave ends the retries of a stream that has ended.
func (q *Quarantine) Leave(stream uint64) {
	if q.Active() {
		now := q.cfg.Now()
		q.change(now, func() { q.state.Leave(now, stream) })
	}
}

// Remembers reports whether reports about a version still count.
func (q *Quarantine) Remembers(k Key) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Remembers(k)
}

// Withheld lists the withheld versions, by view, type and name.
func (q *Quarantine) Withheld() []Withheld {
	if !q.Active() {
		return nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Withheld()
}

// Resumed lists the versions that were released since the last call, so that they can be sent to proxies that lack
// them. There is one caller.
func (q *Quarantine) Resumed() []Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Resumed()
}

// change changes the state, and reports the resulting decisions.
func (q *Quarantine) change(now time.Time, do func()) {
	q.mu.Lock()
	do()
	events, unanswered := q.state.Decided(now)
	q.active.Store(int32(q.state.Active()))
	q.mu.Unlock()
	if unanswered > 0 {
		obs.QuarantineRetries.WithLabelValues("unanswered").Add(float64(unanswered))
	}
	for _, e := range events {
		q.notify(e)
	}
}

// notify logs and counts a decision.
func (q *Quarantine) notify(e Event) {
	w := e.Withheld
	about := []any{obs.KeyObjects, w.Objects, obs.KeyType, w.Type.String(), obs.KeyName, w.Name, obs.KeyVersion, w.Version, obs.KeyView,
		w.View,
		obs.KeyEnvoys, w.Envoys, obs.KeyIdentities, w.RefusedBy, obs.KeyFirst, w.First, obs.KeyLast, w.Last, obs.KeyError, w.Text}
	obs.QuarantineDecisions.WithLabelValues(e.Decision.String()).Inc()
	if w.Identity != "" {
		about = append(about, obs.KeyIdentity, w.Identity)
	}
	if e.Decision == Withhold && w.Identity != "" {
		q.cfg.Log.Warn("a version is withheld from the proxies of one identity in a view that run these versions of Envoy, because several of "+
			"its workloads refused it",
			append(about, obs.KeyRetry, w.Next)...)
		return
	}
	if e.Decision == Withhold {
		q.cfg.Log.Warn("a version is withheld from all proxies of a view that run these versions of Envoy, because distinct identities "+
			"refused it",
			append(about, obs.KeyRetry, w.Next)...)
		return
	}
	q.cfg.Log.Info("a version is no longer withheld from a view",
		append(about, obs.KeyBecause, strings.ReplaceAll(e.Decision.String(), "_", " "))...)
}
