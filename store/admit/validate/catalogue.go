package validate

import (
	"sync"
	"time"

	"navarch.io/navarch/store/mirror"
)

// maxShare limits the time that is spent on reading lists. If the reading of a list took the time t, the list is used
// for maxShare times t. For example, a list of 120,000 addresses takes 0.1 s to read, so it is used for 2 s. A list of
// a small mesh is read again for nearly every review.
const maxShare = 20

// list contains sorted values from the records of a snapshot (stored configuration objects). Reviews of objects look up
// values in it. A list is also used for a while at newer snapshots. Without this reuse, a tenant who writes many
// objects would cause a reading of all records for each object. A list is safe for concurrent use.
type list[E any] struct {
	read func(*mirror.Snapshot) []E

	mu    sync.Mutex
	all   []E
	of    *mirror.Snapshot
	reads int       // for tests
	until time.Time // the list is used until then, also at newer snapshots
}

// at returns the values for reviews at a snapshot. The caller must not change the slice.
func (l *list[E]) at(known *mirror.Snapshot) []E {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	if l.of == known || l.of != nil && began.Before(l.until) {
		return l.all
	}
	l.all, l.of = l.read(known), known
	l.reads++
	now := time.Now()
	l.until = now.Add(maxShare * now.Sub(began))
	return l.all
}

// catalogue contains the lists that the values of type owners at successive snapshots share.
type catalogue struct {
	users list[user]
	below list[below]
}

func newCatalogue() *catalogue {
	return &catalogue{users: list[user]{read: readUsers}, below: list[below]{read: readHosts}}
}
