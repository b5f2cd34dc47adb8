package admit

import (
	"context"
	"net/netip"
	"sync"

	"golang.org/x/sync/semaphore"
)

// room counts the bytes of reviews that are in hand. Those of one host wait for others of that host first, so that what waits there takes
// nothing of what all share.
type room struct {
	perHost int64
	all     *semaphore.Weighted

	mu    sync.Mutex // a leaf; guards what follows
	hosts map[netip.Prefix]*hostRoom
}

// hostRoom is there while somebody of the host is in the room or waits for it.
type hostRoom struct {
	bytes *semaphore.Weighted
	users int
}

func newRoom(perHost, all int64) *room {
	return &room{perHost: perHost, all: semaphore.NewWeighted(all), hosts: map[netip.Prefix]*hostRoom{}}
}

// enter waits until there is room for a number of bytes of a host. leave, which must be called once, gives it back. The error is the
// context's.
func (r *room) enter(ctx context.Context, host netip.Prefix, size int64) (leave func(), err error) {
	size = min(size, r.perHost)
	r.mu.Lock()
	of := r.hosts[host]
	if of == nil {
		of = &hostRoom{bytes: semaphore.NewWeighted(r.perHost)}
		r.hosts[host] = of
	}
	of.users++
	r.mu.Unlock()
	forget := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(r.hosts, host)
		}
	}
	if err := of.bytes.Acquire(ctx, size); err != nil {
		forget()
		return nil, err
	}
	if err := r.all.Acquire(ctx, size); err != nil {
		of.bytes.Release(size)
		forget()
		return nil, err
	}
	return func() {
		r.all.Release(size)
		of.bytes.Release(size)
		forget()
	}, nil
}
