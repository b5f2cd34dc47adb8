package relay

import (
	"strconv"
	"sync"

	"google.golang.org/grpc/metadata"
)

// Headers: the floor goes up, the store's identity comes down and goes up.
const (
	headerRevision = "navarch-revision"
	headerStore    = "navarch-store"
)

// floor is the highest revision of the store that a response was made of. Content hashes have no order: the floor is what
// keeps a proxy from being taken back by a replica that lags.
type floor struct {
	mu       sync.Mutex
	store    string
	revision uint64
}

// see takes the system_version_info of a response from a server of that store. A server that does not name its store says
// nothing about it; one of another store begins anew.
func (f *floor) see(store, revision string) {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		n = 0 // it is a debug field: other control planes write other things
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if store != "" && store != f.store {
		if f.store != "" {
			f.revision = 0
		}
		f.store = store
	}
	f.revision = max(f.revision, n)
}

func (f *floor) get() (store string, revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store, f.revision
}

// add says the floor in the headers of a new stream.
func (f *floor) add(md metadata.MD) {
	store, revision := f.get()
	if revision == 0 {
		return
	}
	md.Set(headerRevision, strconv.FormatUint(revision, 10))
	if store != "" {
		md.Set(headerStore, store)
	}
}
