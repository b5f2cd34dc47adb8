package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBusy reports that a caller has too many unfinished answers. Turns.Take wraps it. A retry may succeed after one of
// these answers is finished.
var ErrBusy = errors.New("too many requests at once: try again when they are answered")

// The answers for one tenant (Question.Tenant) are separated by pauses. A pause lasts 9 times as long as the making of
// the answer before it, at most 4 min. The most expensive answers are previews. A preview takes at most 25 s, so the
// pause after it is below 4 min. Previews for one tenant thus use at most a tenth of the time of a processor.
const (
	pauses       = 9
	longestPause = 4 * time.Minute
)

// Turns limits the cost of making and keeping answers. It is safe for concurrent use. There are three limits:
//
//   - the number of costly answers that are made concurrently, over all callers;
//   - the number of answers of one caller that wait, are made, or are not read yet;
//   - the processor time of one tenant: the tenant's answers are made one after the other, with a pause after each.
type Turns struct {
	costly    chan struct{} // a place for each costly answer that may be made at once
	perCaller int

	mu      sync.Mutex // a leaf lock
	callers map[string]int
	tenants map[string]*tenant
}

// tenant is the state of one tenant while an answer for one of its callers waits or is made, and during the pause
// after it.
type tenant struct {
	turn chan struct{} // capacity 1: occupied while an answer is made, and during the pause after it
	held int           // number of answers that wait, are made, or are in the pause after them
}

// NewTurns returns Turns for at most atOnce concurrent costly answers, and at most perCaller unfinished answers of one
// caller. With atOnce 0 a costly answer without a Place waits until its context ends. With perCaller 0 each Take fails
// with ErrBusy. A negative atOnce panics.
func NewTurns(atOnce, perCaller int) *Turns {
	return &Turns{costly: make(chan struct{}, atOnce), perCaller: perCaller, callers: map[string]int{}, tenants: map[string]*tenant{}}
}

// Question describes a request for an answer. Caller is the name by which the unfinished answers of one caller are
// counted; the empty name is a caller too. The answers for one non-empty Tenant are made one at a time; an empty Tenant
// sets no such limit. NewTurns limits the costly answers without a Place that are made at once. The answers with a
// Place are limited by the capacity of Place alone, so they never keep other costly answers waiting.
type Question struct {
	Caller, Tenant string
	Costly         bool
	Place          chan struct{} // contains one element for each answer that is being made; nil: no such limit
}

// Turn is the right to make one answer. The owner calls Made when the answer is made, which ends the turn. The owner
// calls Done when the answer has been read. Until Done, the answer counts as an unfinished answer of its caller. Done
// implies Made. Repeated calls do nothing. In the zero Turn both functions are nil.
type Turn struct{ Made, Done func() }

// Take waits for the turn of an answer until ctx ends. The turns of one tenant are granted in the order of arrival. The
// turns of costly answers are, too. Errors: ErrBusy (wrapped), without waiting, if the caller has perCaller unfinished
// answers; or the wrapped error of ctx. With an error the Turn is zero.
func (t *Turns) Take(ctx context.Context, q Question) (turn Turn, err error) {
	if err := t.enter(q.Caller); err != nil {
		return Turn{}, err
	}
	defer func() {
		if err != nil {
			t.leave(q.Caller)
		}
	}()
	rest, err := t.tenantsTurn(ctx, q.Tenant)
	if err != nil {
		return Turn{}, err
	}
	place := q.Place
	if place == nil && q.Costly {
		place = t.costly
	}
	if place != nil {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			rest(0)
			return Turn{}, fmt.Errorf("waited for other costly questions: %w", ctx.Err())
		}
	}
	began := time.Now()
	made := sync.OnceFunc(func() {
		if place != nil {
			<-place
		}
		rest(min(pauses*time.Since(began), longestPause))
	})
	return Turn{Made: made, Done: sync.OnceFunc(func() {
		made()
		t.leave(q.Caller)
	})}, nil
}

// tenantsTurn waits for a tenant's turn; without a tenant it returns at once. The result rest is a function. It frees
// the turn for the tenant's next answer after the given pause. The error wraps the error of ctx.
func (t *Turns) tenantsTurn(ctx context.Context, name string) (rest func(time.Duration), err error) {
	if name == "" {
		return func(time.Duration) {}, nil
	}
	t.mu.Lock()
	own := t.tenants[name]
	if own == nil {
		own = &tenant{turn: make(chan struct{}, 1)}
		t.tenants[name] = own
	}
	own.held++
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.held--; own.held == 0 {
			delete(t.tenants, name)
		}
	}
	select {
	case own.turn <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, fmt.Errorf("waited for other answers of this tenant: %w", ctx.Err())
	}
	return func(pause time.Duration) {
		time.AfterFunc(pause, func() { <-own.turn; forget() })
	}, nil
}

// enter counts an answer for its caller. The error wraps ErrBusy.
func (t *Turns) enter(caller string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callers[caller] >= t.perCaller {
		return fmt.Errorf("%w (%d of this caller)", ErrBusy, t.callers[caller])
	}
	t.callers[caller]++
	return nil
}

// leave reverts enter.
func (t *Turns) leave(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callers[caller]--; t.callers[caller] == 0 {
		delete(t.callers, caller)
	}
}
