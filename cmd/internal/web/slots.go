package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrBusy is returned where no more costly answers are made or waited for; asking again later helps.
var ErrBusy = errors.New("too many costly questions at once: ask again when they are answered")

// Slots bounds how many costly answers are made at once, over all callers, and how many one caller has: made, waited for, or
// not read yet. Safe for concurrent use.
type Slots struct {
	places    chan struct{}
	perCaller int

	mu      sync.Mutex // a leaf
	callers map[string]int
}

// NewSlots has room for atOnce answers that are being made, and for perCaller of one caller.
func NewSlots(atOnce, perCaller int) *Slots {
	return &Slots{places: make(chan struct{}, atOnce), perCaller: perCaller, callers: map[string]int{}}
}

// Turn is one answer's. Made gives its slot to the next: the answer is made, and still counts for its caller, who may read it
// slowly. Done ends it. Either may be called again, and does nothing then.
type Turn struct{ Made, Done func() }

// Take waits for a slot, in the order in which callers came, until ctx ends. Errors: ErrBusy, or why ctx ended.
func (s *Slots) Take(ctx context.Context, caller string) (Turn, error) {
	if err := s.enter(caller); err != nil {
		return Turn{}, err
	}
	select {
	case s.places <- struct{}{}:
		return s.turn(caller), nil
	case <-ctx.Done():
		s.leave(caller)
		return Turn{}, fmt.Errorf("waited for other costly questions: %w", ctx.Err())
	}
}

// Try is Take where nobody waits: without a free slot it is ErrBusy.
func (s *Slots) Try(caller string) (Turn, error) {
	if err := s.enter(caller); err != nil {
		return Turn{}, err
	}
	select {
	case s.places <- struct{}{}:
		return s.turn(caller), nil
	default:
		s.leave(caller)
		return Turn{}, ErrBusy
	}
}

func (s *Slots) turn(caller string) Turn {
	made := sync.OnceFunc(func() { <-s.places })
	return Turn{Made: made, Done: sync.OnceFunc(func() {
		made()
		s.leave(caller)
	})}
}

func (s *Slots) enter(caller string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[caller] >= s.perCaller {
		return fmt.Errorf("%w (%d of this caller)", ErrBusy, s.callers[caller])
	}
	s.callers[caller]++
	return nil
}

func (s *Slots) leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[caller]--; s.callers[caller] == 0 {
		delete(s.callers, caller)
	}
}
