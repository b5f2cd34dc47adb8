package relay

import (
	"sync"
	"time"

	"navarch.io/navarch/push/agentapi"
)

// lowerTries is how many replicas in a row must have been behind before the minimum revision comes down: of a few behind one name,
// which is dialled each time, one is met more than once.
const lowerTries = 8

// minRevision is the highest revision of the store that a response was made of. Content hashes have no order: the minimum revision is
// what keeps a proxy from being taken back by a replica that lags. Where no replica is found that has it (all are cut off from the
// store, and the newest of them is gone), the proxy is served by the newest that was found: static configuration is better
// than none.
type minRevision struct {
	mu   sync.Mutex
	seen agentapi.MinRevision

	tries int       // replicas in a row that were behind
	since time.Time // the first of them
	best  int64     // the highest revision that they have
}

// see takes the system_version_info of a response from a server of that store. A server that does not name its store says
// nothing about it; with one of another store it begins again from that one's revisions.
func (f *minRevision) see(store, revision string) {
	n, _ := agentapi.DecodeRevision(revision)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries = 0 // who speaks has let the stream in
	if store != "" && store != f.seen.Store {
		if f.seen.Store != "" {
			f.seen.Revision = 0
		}
		f.seen.Store = store
	}
	f.seen.Revision = max(f.seen.Revision, n)
}

// behind notes that a replica at a revision does not serve the proxy, because of the minimum revision. Where nobody else was found
// for a time, and in many tries, that comes down to the newest that was: true.
func (f *minRevision) behind(now time.Time, revision int64, atLeast time.Duration) bool {
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
	f.tries, f.seen.Revision = 0, min(f.best, f.seen.Revision)
	return true
}

func (f *minRevision) get() agentapi.MinRevision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}
