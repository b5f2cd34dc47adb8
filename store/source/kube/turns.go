package kube

import (
	"context"
	"sync"
	"time"
)

// Turns bounds how many clusters are listed for the first time at once, so that what is read of lists that are not complete yet is bounded, however many
// clusters there are. Safe for concurrent use.
type Turns struct{ places chan struct{} }

// NewTurns lets so many clusters be listed at once.
func NewTurns(atOnce int) *Turns { return &Turns{make(chan struct{}, atOnce)} }

// longestTurn is how long a turn may take: a cluster whose API server hangs goes on with its lists after that, and another one has its turn beside it.
const longestTurn = 15 * time.Second

// take waits for a turn, which done ends; false: ctx has ended before. done may be called more than once.
func (t *Turns) take(ctx context.Context) (done func(), taken bool) {
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	end := sync.OnceFunc(func() { <-t.places })
	late := time.AfterFunc(longestTurn, end)
	return func() {
		late.Stop()
		end()
	}, true
}

// awaitTurn waits until this cluster may be listed: its API server has answered what Namespaces there are, so that one that is away delays nobody, and
// others have left a turn. It ends with endTurn.
func (s *Source) awaitTurn(ctx context.Context) bool {
	if s.Turns == nil {
		return true
	}
	if !s.awaitList(ctx, namespaces) {
		return false
	}
	done, taken := s.Turns.take(ctx)
	if taken {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.turn = done
	}
	return taken
}

// endTurn lets another cluster be listed: this one was, or is not read any more.
func (s *Source) endTurn() {
	s.mu.Lock()
	done := s.turn
	s.turn = nil
	s.mu.Unlock()
	if done != nil {
		done()
	}
}
