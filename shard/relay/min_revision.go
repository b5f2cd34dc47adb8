package relay

import (
	"sync"
	"time"

	"navarch.io/navarch/push/agentapi"
)

// lowerTries is the number of consecutive refusals before the minimum revision is lowered. Each attempt dials the
// control plane's name again, so one replica may refuse several times.
const lowerTries = 8

// minRevision holds the highest store revision of any response so far. A replica that stays below this revision refuses
// the agent's stream. So a lagging replica does not send older configuration. Versions of resources cannot prevent
// this, because they are content hashes without an order. If all replicas are cut off from the store, perhaps no
// replica has the minimum revision. The minimum is then lowered, since stale configuration is better than no
// configuration.
type minRevision struct {
	mu   sync.Mutex
	seen agentapi.MinRevision

	tries int       // consecutive refusals by replicas with too low a revision
	since time.Time // time of the first of these refusals
	best  int64     // highest revision of the replicas that made these refusals
}

// observe records a response of a server. The parameter version is the response's system_version_info. It is empty if
// only the response headers came. The parameter store is the name of the server's store. If it is empty (unknown), it
// counts as the same store as before. For another store, the minimum revision starts again with the revisions of that
// store.
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

// behind records that a replica refused the stream, because the replica's revision is below the minimum. After
// lowerTries consecutive refusals during at least the time atLeast, behind lowers the minimum and returns true. Before
// that it returns false. The new minimum is the highest revision of the refusing replicas, and has no place
// (agentapi.MinRevision). A call of behind never raises the minimum.
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
