package dns

import (
	"sync"
	"time"
)

// restFor is the time for which a server that timed out comes after the others, until it is tried again.
const restFor = 10 * time.Second

// resting records the servers that timed out. Others are tried first, because a query to a dead server costs
// serverPatience.
type resting struct {
	mu    sync.Mutex           // a leaf lock: guards until
	until map[asking]time.Time // when the server is tried again
}

// asking is a server and a transport: a server may be unreachable over TCP and answer over UDP.
type asking struct {
	server string
	stream bool
}

// order returns the servers in the order in which they are tried: that of servers, but those that timed out come last.
// due lists the servers that timed out and are tried again now, in the background. A server is due once in restFor, and
// only while another server is tried first.
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

// asked records whether a server timed out (late) or answered.
func (r *resting) asked(server string, stream, late bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late {
		r.until[asking{server, stream}] = now.Add(restFor)
	} else {
		delete(r.until, asking{server, stream})
	}
}
