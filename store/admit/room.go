package admit

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
)

// room counts the bytes of reviews in progress. No host occupies all of it: beyond its first review, a host gets at
// most half of the bytes that other hosts leave. Half of the room is reserved for the first bytes of reviews and for
// clients that are ahead, however many hosts there are.
type room struct {
	perHost, half int64

	mu      sync.Mutex             // a leaf; guards what follows
	free    int64                  // unused bytes
	hosts   map[netip.Prefix]int64 // bytes of each host with reviews in progress
	waiting list.List              // of *request, those of claims that are ahead first
}

// claim is the part of the room that one review occupies.
type claim struct {
	host  netip.Prefix
	ahead bool // precedes other waiting claims, and is not limited by other hosts' use
	bytes int64
}

type request struct {
	*claim
	bytes   int64
	granted chan struct{} // closed when the bytes are granted
}

func newRoom(perHost, all int64) *room {
	return &room{perHost: perHost, half: all / 2, free: all, hosts: map[netip.Prefix]int64{}}
}

// take waits until a claim can get n more bytes. After an error, which is the context's, the claim is unchanged.
func (r *room) take(ctx context.Context, c *claim, n int64) error {
	r.mu.Lock()
	if r.fits(c, n) {
		r.grant(c, n)
		r.mu.Unlock()
		return nil
	}
	w := &request{c, n, make(chan struct{})}
	at := r.line(w)
	r.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.granted: // leave returns the bytes
	default:
		r.waiting.Remove(at)
	}
	return ctx.Err()
}

// leave returns all bytes of a claim, and grants them to waiting requests.
func (r *room) leave(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += c.bytes
	if r.hosts[c.host] -= c.bytes; r.hosts[c.host] == 0 {
		delete(r.hosts, c.host)
	}
	c.bytes = 0
	for at := r.waiting.Front(); at != nil; {
		w, next := at.Value.(*request), at.Next()
		if r.fits(w.claim, w.bytes) {
			r.grant(w.claim, w.bytes)
			r.waiting.Remove(at)
			close(w.granted)
		}
		at = next
	}
}

// line inserts a request behind those that precede it. The caller holds the lock.
func (r *room) line(w *request) *list.Element {
	if w.ahead {
		for at := r.waiting.Front(); at != nil; at = at.Next() {
			if !at.Value.(*request).ahead {
				return r.waiting.InsertBefore(w, at)
			}
		}
	}
	return r.waiting.PushBack(w)
}

// fits reports whether a claim may have n more bytes. The caller holds the lock.
func (r *room) fits(c *claim, n int64) bool {
	own := r.hosts[c.host]
	switch {
	case n > r.free, c.bytes > 0 && !c.ahead && n > r.free-r.half:
		return false
	case own == 0:
		return true
	case own+n > r.perHost:
		return false
	}
	return c.ahead || own+n <= (own+r.free)/2
}

// grant gives a claim n more bytes. The caller holds the lock.
func (r *room) grant(c *claim, n int64) {
	r.free -= n
	r.hosts[c.host] += n
	c.bytes += n
}
