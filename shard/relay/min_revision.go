package relay

import (
	"sync"
	"time"

	"navarch.io/navarch/push/agentapi"
)

// lowerTries is the number of consecutive refusals before the minimum revision is lowered. Each attempt dials the
// control plane's name again, so one replica may refuse several times.
const lowerTries = 8

// minRevision is the highest store revision of any response so far. Content hashes have no order, so only the minimum
// revision prevents a lagging replica from sending older configuration. It may be that no replica has that revision,
// because all are cut off from the store and the newest of them is gone. Then the minimum is lowered to the newest
// revision found, since stale configuration is better than no configuration.
type minRevision struct {
	mu   sync.Mutex
	seen agentapi.MinRevision

	tries int       // consecutive refusals by replicas that were behind
	since time.Time // time of the first refusal
	best  int64     // highest revision of the replicas that refused
}

// observe records the system_version_info of a response. An empty version means that only the response headers came.
// store is the server's store. An empty (unknown) store counts as the same store. With another store the minimum
// revision starts again from that store's revisions.
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
	if place != "" { // the server has admitted the stream, so its state is not older than the minimum
		f.seen.Place = place
	}
}

// behind records that a replica at a revision refused the proxy because of the minimum revision. After lowerTries
// consecutive refusals over at least the duration atLeast, it lowers the minimum to the highest revision among them,
// without a place. Then it returns true, else false. The minimum never rises here.
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

// get returns the present minimum.
func (f *minRevision) get() agentapi.MinRevision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}
