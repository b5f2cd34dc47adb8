package dns

import (
	"sync"
	"time"
)

// restFor is the time after a server's timeout until a query tests whether the server answers again.
const restFor = 10 * time.Second

// resting records the servers that timed out. The other servers are tried first, because a query to a dead server costs
// serverPatience.
type resting struct {
	mu    sync.Mutex           // guards until; no other lock is acquired while mu is held
	until map[asking]time.Time // servers that timed out, with the time of the next test
}

// asking is a server and a transport: a server may be unreachable over TCP and answer over UDP.
type asking struct {
	server string
	stream bool
}

// order returns the servers in the order in which they are tried: first the servers without a recorded timeout, then
// the others. Each of the two groups keeps the order of the argument servers. The result due lists the servers with a
// recorded timeout that the caller tests with this query in the background. Each server is due at most once in restFor.
// If every server has a recorded timeout, due is empty, because the caller then tries all servers anyway.
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

// asked records the outcome of a query to a server. If the argument late is true, the server timed out, and asked
// records the timeout. If it is false, asked deletes a recorded timeout.
func (r *resting) asked(server string, stream, late bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late {
		r.until[asking{server, stream}] = now.Add(restFor)
	} else {
		delete(r.until, asking{server, stream})
	}
}
