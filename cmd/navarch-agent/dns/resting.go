package dns

import (
	"sync"
	"time"
)

// restFor is for how long a server that has not answered in time is asked after the others, until it is tried again.
const restFor = 10 * time.Second

// resting are the servers that have not answered in time and may be dead: waiting for one costs serverPatience, so others are asked first.
type resting struct {
	mu    sync.Mutex           // a leaf: guards until
	until map[asking]time.Time // when it is to be tried again
}

// asking is one way to ask a server: what passes UDP may stop TCP.
type asking struct {
	server string
	stream bool
}

// order is in which order servers are to be asked: that given, but those that rest come last. due are those of them that are to be tried
// again, where others are asked first; each is due once in restFor.
func (r *resting) order(servers []string, stream bool, now time.Time) (order, due []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last []string
	for _, server := range servers {
		if _, rests := r.until[asking{server, stream}]; rests {
			last = append(last, server)
		} else {
			order = append(order, server)
		}
	}
	if len(order) > 0 {
		for _, server := range last {
			if u := (asking{server, stream}); !now.Before(r.until[u]) {
				due, r.until[u] = append(due, server), now.Add(restFor)
			}
		}
	}
	return append(order, last...), due
}

// asked notes whether a server had nothing to say in time.
func (r *resting) asked(server string, stream, late bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late {
		r.until[asking{server, stream}] = now.Add(restFor)
	} else {
		delete(r.until, asking{server, stream})
	}
}
