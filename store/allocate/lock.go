package allocate

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/obs"
)

// lockName is the name of the leader-election lock of istiod's controller of automatic addresses. Depending on istiod's
// version, the lock is a ConfigMap with an annotation, or a Lease (pilot/pkg/leaderelection; client-go,
// tools/leaderelection/resourcelock).
const (
	lockName       = "istio-ip-autoallocate"
	lockAnnotation = "control-plane.alpha.kubernetes.io/leader"
)

const (
	lookEvery = 5 * time.Second // interval of reads, and timeout of each
	// defaultLease is the assumed duration of a lock that states no duration. It is istiod's default.
	defaultLease = 30 * time.Second
)

// Lock reports whether istiod holds the lock of its controller, and so assigns automatic addresses. This process only
// reads the lock. A nil Lock is never held, and Run must not be called on it. Lock is safe for concurrent use.
type Lock struct {
	api       *apiserver.Client
	namespace string
	log       *slog.Logger

	mu      sync.Mutex    // guards the fields below
	seen    [2]record     // last state of the ConfigMap and of the Lease
	since   [2]time.Time  // time of the last change of each element of seen, by this process's clock
	held    bool          // see Held
	others  bool          // see Others
	why     string        // see Unknown
	changed chan struct{} // closed when held or others changes
}

// record is the content of a lock.
type record struct {
	Holder  string `json:"holderIdentity"`
	Seconds int    `json:"leaseDurationSeconds"`
	Renewed string `json:"renewTime"`
}

// NewLock returns a Lock for the lock in istiod's namespace. NewLock sends no request. Run reads the lock.
func NewLock(api *apiserver.Client, namespace string, log *slog.Logger) *Lock {
	return &Lock{api: api, namespace: namespace, log: log, held: true, changed: make(chan struct{})}
}

// Held reports whether istiod holds the lock, or may hold it. The result is true before the first read, and while the
// lock cannot be read. It is false for a nil Lock.
func (l *Lock) Held() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Others reports whether the last read succeeded and found that istiod holds the lock. The result is false before the
// first read, after a failed read, and for a nil Lock.
func (l *Lock) Others() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.others
}

// Unknown returns the reason why the last read of the lock failed. It is empty if the read succeeded, before the first
// read, and for a nil Lock.
func (l *Lock) Unknown() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// Changed returns a channel that is closed at the next change of Held or Others. Call Changed before Held and Others,
// so that no change is missed. For a nil Lock the channel is nil, so it is never ready.
func (l *Lock) Changed() <-chan struct{} {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Run reads the lock at once and then every 5 s. It blocks until ctx ends. Failures are logged, and stated by Unknown.
func (l *Lock) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		records, err := l.read(ctx)
		if ctx.Err() != nil {
			return
		}
		l.applyRead(time.Now(), records, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// read requests both forms of the lock, the ConfigMap first. The record of a missing form is zero. read fails if a
// request fails or the content cannot be decoded.
func (l *Lock) read(ctx context.Context) (records [2]record, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	in := "/namespaces/" + url.PathEscape(l.namespace) + "/"
	var configMap struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := l.api.Do(ctx, http.MethodGet, "/api/v1"+in+"configmaps/"+lockName, nil, &configMap); err != nil &&
		!apiserver.IsStatus(err, http.StatusNotFound) {
		return records, err
	}
	if text := configMap.Metadata.Annotations[lockAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &records[0]); err != nil {
			return records, err
		}
	}
	var lease struct {
		Spec record `json:"spec"`
	}
	if err := l.api.Do(ctx, http.MethodGet, "/apis/coordination.k8s.io/v1"+in+"leases/"+lockName, nil, &lease); err != nil &&
		!apiserver.IsStatus(err, http.StatusNotFound) {
		return records, err
	}
	records[1] = lease.Spec
	return records, nil
}

// applyRead updates the state with the result of a read. A lock with a holder counts as held until its duration has
// passed since the last change of its content. The time is measured by this process's clock, as in client-go.
func (l *Lock) applyRead(now time.Time, records [2]record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, held, why := l.held, false, l.why
	if l.why = ""; err != nil {
		l.why, held = err.Error(), true
	} else {
		for i, r := range records {
			if r != l.seen[i] {
				l.seen[i], l.since[i] = r, now
			}
			length := time.Duration(r.Seconds) * time.Second
			if length <= 0 {
				length = defaultLease
			}
			held = held || r.Holder != "" && now.Sub(l.since[i]) < length
		}
	}
	others := held && err == nil
	if l.held = held; held != was || others != l.others {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.others = others
	switch {
	case why == "" && l.why != "":
		l.log.Warn("istiod's lock of automatic addresses cannot be read: the assignment of new addresses is suspended",
			obs.KeyName, lockName, obs.KeyError, err)
	case was != held && held:
		l.log.Info("istiod holds the lock of automatic addresses: this process only reads them from the status", obs.KeyName, lockName)
	case was != held:
		l.log.Info("istiod's lock of automatic addresses is free: this process assigns them while it leads",
			obs.KeyName, lockName)
	}
}
