package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBusy is returned if too many answers are being made or waited for. A later retry helps.
var ErrBusy = errors.New("too many questions at once: ask again when they are answered")

// A tenant's turn rests for pauses times the duration of the answer, longestPause at most.
const (
	pauses       = 9
	longestPause = 10 * time.Second
)

// Turns limits the cost of making and keeping answers: the number of costly answers that are made at once, over all
// callers; the number of answers of one caller that are made, waited for or not read yet; and the processor time of all
// callers of one tenant, who are answered one after the other, with a pause after each answer. Safe for concurrent use.
type Turns struct {
	costly    chan struct{} // a place for each costly answer that may be made at once
	perCaller int

	mu      sync.Mutex // a leaf
	callers map[string]int
	tenants map[string]*tenant
}

// tenant exists while an answer for one of its callers is made or waited for, and during the pause after one.
type tenant struct {
	turn chan struct{} // capacity 1: occupied while an answer is made, and during the pause after it
	held int           // answers that are made, wait, or rest
}

// NewTurns allows atOnce costly answers to be made at once, and perCaller answers of one caller.
func NewTurns(atOnce, perCaller int) *Turns {
	return &Turns{costly: make(chan struct{}, atOnce), perCaller: perCaller, callers: map[string]int{}, tenants: map[string]*tenant{}}
}

// Question describes an answer's caller. Tenant is empty for a caller that shares no pace with others.
type Question struct {
	Caller, Tenant string
	Costly         bool
}

// Turn is the turn of one answer. Made is called when the answer is made: it passes the turn to the next, and the
// answer still counts for its caller, who may read it slowly. Done ends the turn. Repeated calls of either do nothing.
type Turn struct{ Made, Done func() }

// Take waits for an answer's turn until ctx ends. The answers of a tenant are made in the order of arrival, and so are
// costly answers over all callers. It returns ErrBusy, or the error of ctx.
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
	if q.Costly {
		select {
		case t.costly <- struct{}{}:
		case <-ctx.Done():
			rest(0)
			return Turn{}, fmt.Errorf("waited for other costly questions: %w", ctx.Err())
		}
	}
	began := time.Now()
	made := sync.OnceFunc(func() {
		if q.Costly {
			<-t.costly
		}
		rest(min(pauses*time.Since(began), longestPause))
	})
	return Turn{Made: made, Done: sync.OnceFunc(func() {
		made()
		t.leave(q.Caller)
	})}, nil
}

// tenantsTurn waits for a tenant's turn; rest passes it to the next caller after a pause.
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

func (t *Turns) enter(caller string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callers[caller] >= t.perCaller {
		return fmt.Errorf("%w (%d of this caller)", ErrBusy, t.callers[caller])
	}
	t.callers[caller]++
	return nil
}

func (t *Turns) leave(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.callers[caller]--; t.callers[caller] == 0 {
		delete(t.callers, caller)
	}
}
