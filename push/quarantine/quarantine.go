// Package quarantine decides which versions of resources are withheld from whole views because proxies refused them, and
// when a withheld version is sent to one proxy again, a retry.
//
// A version is withheld from the proxies of a view that run one version of Envoy, once a quorum of distinct identities which
// run that Envoy refused it. Proxies of the view that run another Envoy are then sent it one at a time, until one of them
// acknowledges it, or a quorum of their own refused it.
//
// What is withheld is retried, by one proxy at a time on each replica: first after Settings.Pause, and after each retry that
// failed twice as long as before. A retry that is refused prolongs the withholding, one that ends without an answer (the proxy
// may have crashed of it) only puts off the next one. Each identity prolongs by retries, and by its first refusal; what it
// repeats unasked changes nothing. A version that nobody refused for Settings.Keep is forgotten, and sent to everybody.
//
// One acknowledgement of a retry releases the version, with two exceptions, because one identity must not decide alone against
// others that refuse: an identity that refused the version itself, and every identity after a release that a quorum has
// contradicted by refusing again, is one of as many distinct identities as are needed to withhold. These must all acknowledge,
// one retry after the other, with no refusal between them.
//
// What the workloads of one identity refuse is withheld from that identity's proxies alone (Key.Identity), by the same rules: what counts
// as an identity elsewhere is one credential there, that of a Pod for instance. So a version that only the proxies of one service account
// refuse is withheld from them, and from nobody else. Where a version is withheld from all proxies of the view, that goes before.
//
// Replicas exchange Reports, and each comes to its decisions by the same rules. What is withheld from one identity alone each decides by
// what its own proxies answer.
//
// Owns: who refused what, what is withheld, which retries are under way.  Reads: push/xds.  Never: a stream, etcd.
//
// # Replicas
//
// State is pure: reports go in, with their times, and decisions come out. Each replica keeps a leased list of its
// proxies' reports in refusals/ (push/quarantine/share) and follows the lists of the others. Identities in these lists
// are hashed. A report counts from the time at which it was made, so a list that is read again changes nothing. Each
// replica decides by itself, with or without etcd.
//
// Every second serve.Server looks for a stream that lacks a version whose retry is due. It sends released versions to
// the streams that lack them, to eight first and then to twice as many each second. Withheld versions are the
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

// Key is one version of one resource, as the proxies of one view are to have it.
type Key struct {
	View    string // serve.Proxy.ID, equal on all replicas
	Type    xds.Type
	Name    string
	Version string
	// Identity is whose proxies alone are meant, a SPIFFE ID; empty: all of the view.
	Identity string
}

// Covers says whether proxies of an identity are meant.
func (k Key) Covers(identity string) bool { return k.Identity == "" || k.Identity == identity }

// Of is the same version as the proxies of one identity are to have it; of an empty one: as all are.
func (k Key) Of(identity string) Key {
	k.Identity = identity
	return k
}

// Reporter is who answered: a hash of an identity; of a Key that means one identity alone, its Credential.
type Reporter [16]byte

// ReporterOf is the reporter of an identity (a SPIFFE ID); where that is empty, as on plain text, of a node's id.
func ReporterOf(identity, node string) Reporter {
	sum := sha256.Sum256([]byte(cmp.Or(identity, "node:"+node)))
	return Reporter(sum[:16])
}

// Credential is a hash of a credential of an identity.
type Credential [16]byte

// CredentialOf is that of what an identity has shown; zero where that is not told apart (empty).
func CredentialOf(identity, credential string) (c Credential) {
	if credential != "" {
		sum := sha256.Sum256([]byte(identity + "\x00" + credential))
		c = Credential(sum[:16])
	}
	return c
}

// Report is what one proxy answered to one version.
type Report struct {
	Key
	Reporter Reporter
	By       string // the SPIFFE ID of Reporter; empty: it has none
	// Credential tells apart the credentials of one identity, so that none takes all the room of its identity; zero: nothing does, as in what
	// other replicas report.
	Credential Credential
	Envoy      string        // version of the proxy's Envoy; empty: it does not say
	At         time.Time     // when the answer came; zero: now
	Accepted   bool          // it acknowledged the version; else it refused it
	Retry      bool          // the version was sent to it as a retry
	Namespace  string        // of the proxy
	Text       string        // why it refused, in its words, cut
	Objects    []model.Place // what the resource was made of, the likeliest culprit first
}

// ofIdentity is the same answer, as one that counts for the proxies of its own identity. false: nothing tells these apart.
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
	Envoys    []string // the versions of Envoy that it is withheld from
	// distinct identities, of Key.Identity credentials, that refused it, counted up to maxReporters for each version of Envoy
	RefusedBy   int
	First, Last time.Time // refusals
	Next        time.Time // the next retry on this replica, at the earliest
	Text        string    // why, in the words of the proxy that was the first to say so
	Objects     []model.Place
}

// Config is what a Quarantine is made of. The zero Config is ready for use.
type Config struct {
	Settings
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: slog.Default()
	// Share is given each answer that a proxy of this replica gave, for the other replicas. The goroutine that reads its stream waits for it. nil: there are none.
	Share func(Report)
}

// Quarantine is a State that many goroutines use, with a clock, a log and metrics.
type Quarantine struct {
	cfg    Config
	active atomic.Int32 // versions that are withheld; 0 makes Withholds free

	mu    sync.RWMutex // a leaf: guards state
	state *State
}

// New makes a quarantine in which nothing is withheld.
func New(cfg Config) *Quarantine {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Quarantine{cfg: cfg, state: NewState(cfg.Settings)}
}

// WithheldFrom lists what a stream of a view, by its number from 1, and of an identity, must not be sent; nil: nothing. It is asked before every response: it
// is free while nothing is withheld, and costs as much as is withheld from the view.
func (q *Quarantine) WithheldFrom(view, identity, envoy string, stream uint64) []Key {
	if !q.Active() {
		return nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.WithheldFrom(view, identity, envoy, stream)
}

// Withholds says whether a stream, by its number from 1, must not be sent a version. It is free while nothing is withheld, and does not
// allocate.
func (q *Quarantine) Withholds(k Key, envoy string, stream uint64) bool {
	if q.active.Load() == 0 {
		return false
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Withholds(k, envoy, stream)
}

// Active says whether anything is withheld; free.
func (q *Quarantine) Active() bool { return q.active.Load() > 0 }

// Report takes note of what the proxy of a stream of this replica answered, of an answer to a version that was withheld from its identity alone
// for that identity, of others for all and for its identity.
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

// answered applies a report of a stream, which may be the answer to a retry. With the lock.
func (q *Quarantine) answered(r *Report, stream uint64) {
	r.Retry = q.state.Answered(r.Key, r.Envoy, stream) || r.Accepted
	q.state.Apply(*r)
}

// Merge takes note of reports of other replicas; what is known already changes nothing.
func (q *Quarantine) Merge(reports []Report) {
	now := q.cfg.Now()
	q.change(now, func() { q.state.Merge(now, reports) })
}

// Tick forgets what is over. Call it every second or so.
func (q *Quarantine) Tick() {
	now := q.cfg.Now()
	q.mu.RLock()
	empty := q.state.Empty()
	q.mu.RUnlock()
	if !empty {
		q.change(now, func() { q.state.Tick(now) })
	}
}

// Due says whether a proxy of a version of Envoy is to be sent a version as a retry now.
func (q *Quarantine) Due(k Key, envoy string) bool {
	now := q.cfg.Now()
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Due(now, k, envoy)
}

// Suits says how well a retry by a reporter suits, up to Best; 0: not at all.
func (q *Quarantine) Suits(k Key, envoy string, by Reporter) int {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Suits(k, envoy, by)
}

// Begin makes a stream the one that is sent a version as a retry; false: it is not due any more.
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

// Remembers says whether reports about a version still count.
func (q *Quarantine) Remembers(k Key) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Remembers(k)
}

// Withheld lists what is withheld, by view, type and name.
func (q *Quarantine) Withheld() []Withheld {
	if !q.Active() {
		return nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Withheld()
}

// Resumed lists what was released since it was last asked: proxies that lack it may be sent it. There is one caller.
func (q *Quarantine) Resumed() []Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Resumed()
}

// change does something with the state, and tells what came of it.
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
		q.cfg.Log.Warn("a version is withheld from all proxies of a view that run these versions of Envoy, because distinct identities refused it",
			append(about, obs.KeyRetry, w.Next)...)
		return
	}
	q.cfg.Log.Info("a version is no longer withheld from a view",
		append(about, obs.KeyBecause, strings.ReplaceAll(e.Decision.String(), "_", " "))...)
}
