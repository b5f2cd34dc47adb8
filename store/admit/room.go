package admit

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
)

// room counts the bytes of reviews that are in hand. Nobody takes all of it: what a host has beyond its first review is at most half of what other
// hosts have left; and half of the room is for what reviews take first, and for those that are ahead, however many hosts there are.
type room struct {
	perHost, half int64

	mu      sync.Mutex // a leaf; guards what follows
	free    int64
	hosts   map[netip.Prefix]int64 // bytes of each host that has some
	waiting list.List              // of *request, those of claims that are ahead first
}

// claim is the part of the room that one review has.
type claim struct {
	host  netip.Prefix
	ahead bool // of others that wait, and not bound by what others leave
	bytes int64
}

type request struct {
	*claim
	bytes   int64
	granted chan struct{} // closed once it has them
}

func newRoom(perHost, all int64) *room {
	return &room{perHost: perHost, half: all / 2, free: all, hosts: map[netip.Prefix]int64{}}
}

// take waits until there is room for so many more bytes of a claim. The error is the context's; the claim is then as before.
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
	case <-w.granted: // leave gives it back
	default:
		r.waiting.Remove(at)
	}
	return ctx.Err()
}

// leave gives back what a claim has.
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

// line puts a request behind those that are to be granted before. Called with the lock held.
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

// fits says whether a claim may have n more bytes. Called with the lock held.
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

// grant gives a claim n more bytes. Called with the lock held.
func (r *room) grant(c *claim, n int64) {
	r.free -= n
	r.hosts[c.host] += n
	c.bytes += n
}
