// Package quarantine decides which versions of resources are withheld from whole views because proxies refused them. A
// view is the configuration that proxies with equal inputs share. The package also decides when a withheld version is
// sent to one proxy again, as a retry.
//
// A version is withheld from those proxies of a view that run one version of Envoy, after a quorum of distinct
// identities with that Envoy has refused it. Proxies of the view with another version of Envoy are then sent the
// resource version one at a time, until one of them acknowledges it, or until a quorum with that version of Envoy
// refuses it.
//
// On each replica, a withheld version is retried on one proxy at a time for each version of Envoy. The first retry is
// due after Settings.Pause, and the pause doubles after each failed retry. A retry that ends without an answer, perhaps
// because the proxy crashed, only delays the next retry. While a version is withheld, the first refusal of each
// identity and its refused retries prolong the withholding. Other refusals of the identity have no effect. A version
// without a refusal for Settings.Keep is released and forgotten.
//
// In general, one acknowledgement of a retry releases the version. A quorum of acknowledgements is needed in two cases,
// because one identity must not decide alone against others that refuse. In the first case, the identity has refused
// the version itself. In the second case, the version was released before, and a quorum has refused it again. A quorum
// of acknowledgements has as many distinct identities as a quorum of refusals, in successive retries without a refusal
// in between.
//
// If several workloads of one identity refuse a version, it is withheld from that identity's proxies (Key.Identity).
// The same rules apply, with the credentials of the identity (such as those of its Pods) in the place of identities. So
// a version that only the proxies of one service account refuse is withheld only from them. A withholding from all
// proxies of the view takes precedence.
//
// Replicas exchange Reports, and each decides by the same rules. For a withholding from the proxies of one identity,
// however, each replica uses only the answers of its own proxies.
//
// Owns: the refusals, the withheld versions, the retries in progress. Reads: the proxies' answers, as Reports. Never:
// sends on a stream; uses etcd.
//
// # Replicas
//
// State has no clock, and does no input or output. It gets reports with their times, and returns decisions. Each
// replica keeps a leased list of its proxies' reports in refusals/ in etcd (push/quarantine/share), and reads the lists
// of the other replicas. Identities in these lists are hashed. A report has the time at which it was made, so a list
// that is read again changes nothing. Without etcd, a replica decides from its own proxies' reports.
//
// Every second serve.Server searches for a stream that lacks a version whose retry is due. It sends a released version
// first to eight of the streams that lack the version, and then to twice as many each second. Because of withheld
// versions, replicas may send different bytes to proxies of the same view.
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

// Key identifies one version of one resource in one view.
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

// Of returns the key restricted to one identity. With an empty identity the result is not restricted.
func (k Key) Of(identity string) Key {
	k.Identity = identity
	return k
}

// Reporter identifies the author of an answer. It is a hash of an identity. For a Key with an Identity, it is the
// Credential instead.
type Reporter [16]byte

// ReporterOf returns the Reporter of an identity (a SPIFFE ID). If identity is empty, as on plain text, it returns the
// Reporter of a node ID.
func ReporterOf(identity, node string) Reporter {
	sum := sha256.Sum256([]byte(cmp.Or(identity, "node:"+node)))
	return Reporter(sum[:16])
}

// Credential is a hash of an identity and one of its credentials. It is zero if the credentials of the identity are not
// distinguished.
type Credential [16]byte

// CredentialOf returns the Credential of an identity's credential. For an empty credential it is zero.
func CredentialOf(identity, credential string) (c Credential) {
	if credential != "" {
		sum := sha256.Sum256([]byte(identity + "\x00" + credential))
		c = Credential(sum[:16])
	}
	return c
}

// Report is one proxy's answer (ACK or NACK) to one version of a resource.
type Report struct {
	Key
	Reporter Reporter
	By       string // the SPIFFE ID of Reporter; empty: not authenticated
	// Credential is bounded separately, so that no credential uses up the bounds of its identity. It is zero in reports
	// of other replicas.
	Credential Credential
	Envoy      string        // version of the proxy's Envoy; empty: not stated
	At         time.Time     // time of the answer; zero: now, for Quarantine.Report alone
	Accepted   bool          // the version was acknowledged; false: refused
	Retry      bool          // the answer is to a retry; Quarantine.Report sets it, and always to true if Accepted is true
	Namespace  string        // namespace of the proxy
	Text       string        // the proxy's message, shortened
	Objects    []model.Place // the objects from which the resource was made, the likeliest cause first
}

// ofIdentity returns the answer as a report about the proxies of the reporter's identity alone. The Key of the result
// has this identity, and its Reporter is the credential. It returns false if the credentials of the identity are not
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
	Namespace string   // namespace of the proxies that refused it
	Envoys    []string // versions of Envoy with a quorum of refusals, sorted
	// RefusedBy counts the distinct identities that refused it (credentials, if Key.Identity is set), at most 16 for
	// each of Envoys.
	RefusedBy   int
	First, Last time.Time     // times of the first and last refusal
	Next        time.Time     // earliest time of the next retry on this replica
	Text        string        // first message of a proxy; empty: no message
	Objects     []model.Place // as in Report, of the first report that has objects; read-only
}

// Config configures a Quarantine. The zero Config is ready for use.
type Config struct {
	Settings
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: slog.Default()
	// Share is called by Quarantine.Report with each answer that counts for the whole view, to send the answer to other
	// replicas. Share must not block. nil: answers are not shared.
	Share func(Report)
}

// Quarantine is a State with a clock, a log and metrics. It is safe for concurrent use.
type Quarantine struct {
	cfg    Config
	active atomic.Int32 // number of withheld versions; if it is 0, Withholds takes no lock

	mu    sync.RWMutex // guards state; no other lock is acquired while it is held
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

// WithheldFrom returns the versions that must not be sent on a stream, in no order, or nil. identity and envoy are the
// identity and the version of Envoy of the stream's proxy. stream is the number of the stream, above 0. While no
// version is withheld, the call takes no lock. Otherwise the cost grows with the number of the view's withheld
// versions.
func (q *Quarantine) WithheldFrom(view, identity, envoy string, stream uint64) []Key {
	if !q.Active() {
		return nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.WithheldFrom(view, identity, envoy, stream)
}

// Withholds reports whether a version must not be sent on a stream. k must cover the stream's proxy (Key.Covers). envoy
// is the version of Envoy of the proxy, and stream the number of the stream, above 0. It returns false for a stream
// with a retry of the version (Begin). The call does not allocate. While no version is withheld, it takes no lock.
func (q *Quarantine) Withholds(k Key, envoy string, stream uint64) bool {
	if q.active.Load() == 0 {
		return false
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Withholds(k, envoy, stream)
}

// Active reports whether any version is withheld. It takes no lock.
func (q *Quarantine) Active() bool { return q.active.Load() > 0 }

// Report processes the answer of a proxy of this replica. stream is the number of the proxy's stream, above 0. If r.Key
// has no Identity, the answer counts for all proxies of the view, and Config.Share is called. If r.By and r.Credential
// are set, the answer also counts for the proxies of the identity r.By alone. If r.Key has an Identity, it must be
// r.By. A zero or future r.At is replaced by the present time.
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

// Merge processes reports of other replicas. Reports that were processed before have no effect. Merge does not change
// the slice.
func (q *Quarantine) Merge(reports []Report) {
	now := q.cfg.Now()
	q.change(now, func() { q.state.Merge(now, reports) })
}

// Tick ends retries without an answer and removes expired state. The caller must call it about every second.
func (q *Quarantine) Tick() {
	now := q.cfg.Now()
	q.mu.RLock()
	empty := q.state.Empty()
	q.mu.RUnlock()
	if !empty {
		q.change(now, func() { q.state.Tick(now) })
	}
}

// Due reports whether a version of a resource should be sent as a retry now, to a proxy with the given version of
// Envoy. It returns false for a version that is not withheld.
func (q *Quarantine) Due(k Key, envoy string) bool {
	now := q.cfg.Now()
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Due(now, k, envoy)
}

// Suits returns how suitable a reporter is for a retry of a version, from 0 (unsuitable) to Best.
func (q *Quarantine) Suits(k Key, envoy string, by Reporter) int {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Suits(k, envoy, by)
}

// Begin records that a version is sent on a stream as a retry. stream is the number of the stream, above 0. Begin
// returns false if the retry is not due any more, the reporter is not suitable (Suits), or a bound is reached. In these
// cases the version must not be sent.
func (q *Quarantine) Begin(k Key, envoy string, by Reporter, stream uint64) (begun bool) {
	now := q.cfg.Now()
	q.change(now, func() { begun = q.state.Begin(now, k, envoy, by, stream) })
	return begun
}

// Leave ends the retries of a stream that has ended. The retries count as unanswered.
func (q *Quarantine) Leave(stream uint64) {
	if q.Active() {
		now := q.cfg.Now()
		q.change(now, func() { q.state.Leave(now, stream) })
	}
}

// Remembers reports whether the quarantine has state about a version, so that reports about it still count.
func (q *Quarantine) Remembers(k Key) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Remembers(k)
}

// Withheld returns the withheld versions, sorted by view, type, name, version and identity. It returns nil if no
// version is withheld.
func (q *Quarantine) Withheld() []Withheld {
	if !q.Active() {
		return nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.state.Withheld()
}

// Resumed returns the versions whose withholding ended since the last call, by acknowledgements or because it expired.
// It returns each version once. It returns at most 4096 versions, and drops the others. The caller must send these
// versions to the proxies that lack them. Therefore only one caller should use Resumed.
func (q *Quarantine) Resumed() []Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Resumed()
}

// change calls the function do with the lock held, and then reports the decisions that result. The function changes
// the state.
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
