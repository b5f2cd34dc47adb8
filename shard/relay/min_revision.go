package relay

import (
	"sync"
	"time"

	"navarch.io/navarch/push/agentapi"
)

// lowerTries is the number of consecutive replicas that must be behind before the minimum revision is lowered. With a
// few replicas behind one name, which is dialled each time, a replica is met more than once.
const lowerTries = 8

// minRevision is the highest revision of the store that a response was based on. Content hashes have no order, so the
// minimum revision is what prevents a lagging replica from taking a proxy back. If no replica has that revision (all
// are cut off from the store, and the newest of them is gone), the newest one found serves the proxy: stale
// configuration is better than none at all.
type minRevision struct {
	mu   sync.Mutex
	seen agentapi.MinRevision

	tries int       // consecutive replicas that were behind
	since time.Time // time of the first of them
	best  int64     // highest revision among them
}

// observe records the system_version_info of a response from a server of that store. A server that does not name its
// store changes nothing. With a server of another store the minimum starts again from that store's revisions.
func (f *minRevision) observe(store, version string) {
	n, place, _ := agentapi.DecodeVersion(version)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries = 0 // a server that responds has admitted the stream
	if store != "" && store != f.seen.Store {
		if f.seen.Store != "" {
			f.seen.Revision = 0
		}
		f.seen.Store = store
	}
	f.seen.Revision = max(f.seen.Revision, n)
	if place != "" { // a server that names one has admitted the stream, so it has everything seen before
		f.seen.Place = place
	}
}

// behind records that a replica at a revision refused the proxy because of the minimum revision. After enough refusals
// over a time it lowers the minimum to the newest revision found, and returns true.
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
	f.tries, f.seen.Revision, f.seen.Place = 0, min(f.best, f.seen.Revision), ""
	return true
}

func (f *minRevision) get() agentapi.MinRevision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}
