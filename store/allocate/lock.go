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

// lockName is the lock of istiod's controller of automatic addresses: a ConfigMap whose annotation says who holds it,
// or a Lease (pilot/pkg/leaderelection; client-go, tools/leaderelection/resourcelock).
const (
	lockName       = "istio-ip-autoallocate"
	lockAnnotation = "control-plane.alpha.kubernetes.io/leader"
)

const (
	lookEvery = 5 * time.Second
	// defaultLease is for how long a lock is held that does not say it: istiod's.
	defaultLease = 30 * time.Second
)

// Lock reports whether istiod gives automatic addresses. It is only read. A nil one is never held. Its methods may be
// called from any goroutine.
type Lock struct {
	api       *apiserver.Client
	namespace string
	log       *slog.Logger

	mu      sync.Mutex // a leaf: guards what follows
	seen    [2]record  // what the ConfigMap and the Lease said last
	since   [2]time.Time
	held    bool
	others  bool   // istiod is known to hold it
	why     string // why it is not known whether it is held; empty: it is
	changed chan struct{}
}

// record is what a lock says.
type record struct {
	Holder  string `json:"holderIdentity"`
	Seconds int    `json:"leaseDurationSeconds"`
	Renewed string `json:"renewTime"`
}

// NewLock asks nothing. The namespace is istiod's.
func NewLock(api *apiserver.Client, namespace string, log *slog.Logger) *Lock {
	return &Lock{api: api, namespace: namespace, log: log, held: true, changed: make(chan struct{})}
}

// Held says whether istiod holds the lock, as far as is known: before the first look, and where that cannot be read,
// it does.
func (l *Lock) Held() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Others says whether istiod is known to hold the lock.
func (l *Lock) Others() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.others
}

// Unknown is why it cannot be read whether istiod holds the lock; empty: it can.
func (l *Lock) Unknown() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// Changed is closed when Held says something else.
func (l *Lock) Changed() <-chan struct{} {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Run looks at the lock until ctx ends.
func (l *Lock) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		records, err := l.read(ctx)
		if ctx.Err() != nil {
			return
		}
		l.look(time.Now(), records, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// read reads both forms of the lock; one that is not there is the zero record.
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

// look takes what was read. A lock is held for its length after it was last seen to be renewed: by this process's
// clock, as client-go counts.
func (l *Lock) look(now time.Time, records [2]record, err error) {
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
		l.log.Warn("istiod's lock for automatic addresses cannot be read, so none are given", obs.KeyName, lockName, obs.KeyError, err)
	case was != held && held:
		l.log.Info("istiod holds the lock of automatic addresses: they are only read", obs.KeyName, lockName)
	case was != held:
		l.log.Info("nobody holds istiod's lock of automatic addresses: this process gives them while it leads", obs.KeyName, lockName)
	}
}
