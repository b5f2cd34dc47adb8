package relay

import (
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

// Headers: the floor goes up, the store's identity comes down and goes up. The trailer is of a replica that does not let the
// stream in because it is behind the floor: the revision that it has.
const (
	headerRevision = "navarch-revision"
	headerStore    = "navarch-store"
	trailerBehind  = "navarch-behind"
)

// lowerTries is how many replicas in a row must have been behind before the floor comes down: of a few behind one name, which
// is dialled each time, one is met more than once.
const lowerTries = 8

// minRevision is the highest revision of the store that a response was made of. Content hashes have no order: the floor is what
// keeps a proxy from being taken back by a replica that lags. Where no replica is found that has it (all are cut off from the
// store, and the newest of them is gone), the proxy is served by the newest that was found: static configuration is better
// than none.
type minRevision struct {
	mu       sync.Mutex
	store    string
	revision uint64

	tries int       // replicas in a row that were behind
	since time.Time // the first of them
	best  uint64    // the highest revision that they have
}

// see takes the system_version_info of a response from a server of that store. A server that does not name its store says
// nothing about it; one of another store begins anew.
func (f *minRevision) see(store, revision string) {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		n = 0 // it is a debug field: other control planes write other things
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries = 0 // who speaks has let the stream in
	if store != "" && store != f.store {
		if f.store != "" {
			f.revision = 0
		}
		f.store = store
	}
	f.revision = max(f.revision, n)
}

// behind notes that a replica at a revision does not serve the proxy, because of the floor. Where nobody else was found for
// a time, and in many tries, the floor comes down to the newest that was: true.
func (f *minRevision) behind(now time.Time, revision uint64, atLeast time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries == 0 {
		f.since, f.best = now, 0
	}
	f.tries++
	f.best = max(f.best, revision)
	if f.tries < lowerTries || now.Sub(f.since) < atLeast {
		return false
	}
	f.tries, f.revision = 0, min(f.best, f.revision)
	return true
}

func (f *minRevision) get() (store string, revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store, f.revision
}

// add says the floor in the headers of a new stream.
func (f *minRevision) add(md metadata.MD) {
	store, revision := f.get()
	if revision == 0 {
		return
	}
	md.Set(headerRevision, strconv.FormatUint(revision, 10))
	if store != "" {
		md.Set(headerStore, store)
	}
}
