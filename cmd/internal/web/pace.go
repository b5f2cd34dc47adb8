package web

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Pace gives each caller one answer at a time, and after each a pause of so many times as long as that took: what a caller can have this process do goes by
// what it costs. The zero Pace is ready for use, by any goroutine.
type Pace struct {
	mu      sync.Mutex // a leaf
	callers map[string]*paced
}

// paced is one caller.
type paced struct {
	turn chan struct{} // of one: taken while an answer is made, and in the pause after it
	held int           // that are made, wait, or rest
}

// How long a caller pauses: pauses times as long as its answer took, longestPause at most; and how many of its answers wait.
const (
	pauses       = 3
	longestPause = 10 * time.Second
	mostWaiting  = 8
)

// Take waits for the caller's turn, until ctx ends; made says that the answer is made, and may be called again. Errors: ErrBusy, or why ctx ended.
func (p *Pace) Take(ctx context.Context, caller string) (made func(), err error) {
	own := p.enter(caller)
	if own == nil {
		return nil, fmt.Errorf("%w (%d of this caller)", ErrBusy, mostWaiting)
	}
	select {
	case own.turn <- struct{}{}:
	case <-ctx.Done():
		p.leave(caller)
		return nil, fmt.Errorf("waited for other answers of this caller: %w", ctx.Err())
	}
	began := time.Now()
	return sync.OnceFunc(func() {
		time.AfterFunc(min(pauses*time.Since(began), longestPause), func() { <-own.turn; p.leave(caller) })
	}), nil
}

func (p *Pace) enter(caller string) *paced {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.callers[caller]
	switch {
	case own == nil:
		own = &paced{turn: make(chan struct{}, 1)}
		if p.callers == nil {
			p.callers = map[string]*paced{}
		}
		p.callers[caller] = own
	case own.held >= mostWaiting:
		return nil
	}
	own.held++
	return own
}

func (p *Pace) leave(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.callers[caller]; own.held > 1 {
		own.held--
	} else {
		delete(p.callers, caller)
	}
}
