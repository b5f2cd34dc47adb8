package admit

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
)

// room limits the memory of admission reviews in progress, in bytes. Each review has a claim, which requests bytes
// several times. If the host of a claim has no bytes, its first request only needs enough unused bytes. With further
// requests, the host may have at most perHost bytes, and at most half of the bytes that other hosts leave. Half of the
// room is reserved for the first requests of claims. A claim that is ahead may use the reserved half, and may exceed
// half of the bytes that other hosts leave.
//
// Claims that have a part of their bytes could wait for one another. So one claim at a time, the last, gets further
// bytes beyond these limits until it leaves. Its caller bounds them, since no review is longer than Config.MaxBody.
type room struct {
	perHost, half int64

	mu      sync.Mutex             // guards the fields below; no other lock is acquired while it is held
	free    int64                  // unused bytes
	hosts   map[netip.Prefix]int64 // bytes of each host with reviews in progress
	waiting list.List              // of *request; requests of claims that are ahead come first
	last    *claim                 // the claim that gets bytes beyond the limits; nil: no claim needs them
}

// claim is the part of the room that one review occupies.
type claim struct {
	host  netip.Prefix
	ahead bool  // precedes waiting claims that are not ahead, and has fewer limits (room)
	bytes int64 // bytes within the limits of the room
}

type request struct {
	*claim
	bytes   int64
	granted chan struct{} // closed when the bytes are granted
}

func newRoom(perHost, all int64) *room {
	return &room{perHost: perHost, half: all / 2, free: all, hosts: map[netip.Prefix]int64{}}
}

// take waits until a claim can get n more bytes, and adds them. It fails only if the context ends, and returns the
// context's error. The caller must always call leave, because the claim may have the bytes even after an error.
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
	case <-w.granted: // the claim keeps the bytes until leave
	default:
		r.waiting.Remove(at)
	}
	return ctx.Err()
}

// leave returns all bytes of a claim to the room, and grants the waiting requests that now fit.
func (r *room) leave(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += c.bytes
	if r.hosts[c.host] -= c.bytes; r.hosts[c.host] == 0 {
		delete(r.hosts, c.host)
	}
	c.bytes = 0
	if r.last == c {
		r.last = nil
	}
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

// line inserts a request into waiting, by priority and then by arrival. The caller has the lock.
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

// fits reports whether a claim may have n more bytes. The caller has the lock.
func (r *room) fits(c *claim, n int64) bool {
	return r.within(c, n) || c.bytes > 0 && (r.last == nil || r.last == c)
}

// within reports whether a claim may have n more bytes within the limits. The caller has the lock.
func (r *room) within(c *claim, n int64) bool {
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

// grant adds n bytes to a claim. Bytes beyond the limits make it the last claim, and are not counted. The caller has
// the lock.
func (r *room) grant(c *claim, n int64) {
	if !r.within(c, n) {
		r.last = c
		return
	}
	r.free -= n
	r.hosts[c.host] += n
	c.bytes += n
}
