package debug

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
)

// Bounds of requests for previews, and of the memory for their bodies. A body stays in memory until the response is
// written.
const (
	planBodies       = 64 << 20         // bytes of all callers
	planBodiesTenant = 48 << 20         // bytes of all tenants; the rest is for callers who see everything
	maxPlanBodies    = 2                // requests of one tenant, or of one caller who sees everything
	planBody         = 10 * time.Second // time limit for reading the body
)

// ErrPlanRoom means that requests for previews already use all the memory that they may use. A later retry may succeed.
var ErrPlanRoom = fmt.Errorf("nothing was planned, because requests for previews already use the permitted %d MiB of memory: "+
	"try again in a few seconds", planBodies>>20)

// planRoom counts the bytes of bodies. It is safe for concurrent use.
type planRoom struct {
	mu           sync.Mutex
	all, tenants int64
}

// take reserves bytes until release is called. The result ok is false if there is no room. The function release is
// never nil, and may be called repeatedly.
func (r *planRoom) take(bytes int64, tenant bool) (release func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all+bytes > planBodies || tenant && r.tenants+bytes > planBodiesTenant {
		return func() {}, false
	}
	var of int64 // bytes that count for tenants
	if tenant {
		of = bytes
	}
	r.all, r.tenants = r.all+bytes, r.tenants+of
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all, r.tenants = r.all-bytes, r.tenants-of
	}), true
}

// PlanRoom reserves memory for the body of a request for a preview. The body has been read already. The reservation
// ends when release is called; release is never nil. The only possible error is ErrPlanRoom.
func (p *Pages) PlanRoom(who authz.Caller, bytes int) (release func(), err error) {
	release, ok := p.room.take(int64(bytes), who.Sees != nil)
	if !ok {
		return release, ErrPlanRoom
	}
	return release, nil
}

// PlanBody reads the body of a request for a preview, at most MaxPlanBody bytes within 10 s. The caller must call done
// when the response has been written, also after an error; done is never nil. Each identity of a tenant may have one
// unfinished request.
//
// With an error, status is the HTTP status of the response: 429 for too many unfinished requests, 503 for ErrPlanRoom,
// 413 for a body that is too large, and 400 for a body that cannot be read. Without an error, status is 0.
func (p *Pages) PlanBody(ctx context.Context, who authz.Caller, w http.ResponseWriter, r *http.Request,
) (body []byte, done func(), status int, err error) {
	// The caller's turn (see Plan) begins once the body has been read, so that slow clients do not keep others waiting.
	place, err := p.bodies.Take(ctx, web.Question{Caller: cmp.Or(who.Tenant, who.Name)})
	if err != nil {
		return nil, func() {}, http.StatusTooManyRequests, err
	}
	identity := web.Turn{Done: func() {}}
	if who.Tenant != "" {
		if identity, err = p.identities.Take(ctx, web.Question{Caller: who.Name}); err != nil {
			place.Done()
			return nil, func() {}, http.StatusTooManyRequests, err
		}
	}
	size := r.ContentLength
	if size < 0 || size > MaxPlanBody {
		size = MaxPlanBody
	}
	release, ok := p.room.take(size, who.Sees != nil)
	done = func() { release(); identity.Done(); place.Done() }
	if !ok {
		return nil, done, http.StatusServiceUnavailable, ErrPlanRoom
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(planBody)) // response recorders in tests support no deadline
	into := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err = into.ReadFrom(http.MaxBytesReader(w, r.Body, MaxPlanBody)); err != nil {
		status = http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			status, err = http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", large.Limit)
		}
	}
	return into.Bytes(), done, status, err
}
