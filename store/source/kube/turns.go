package kube

import (
	"context"
	"sync"
	"time"
)

// Turns limits the number of clusters that are listed for the first time concurrently, and thereby the memory for
// incomplete lists. A turn is the time for the first lists of one cluster. Sources share a Turns by Config.Turns. It is
// safe for concurrent use.
type Turns struct{ places chan struct{} }

// NewTurns returns a Turns that admits atOnce clusters at once. atOnce must be above 0: with 0 no cluster is admitted,
// and a negative number panics.
func NewTurns(atOnce int) *Turns { return &Turns{make(chan struct{}, atOnce)} }

// longestTurn is the time limit of a turn. After this time the next cluster is admitted. The first lists of the present
// cluster continue nevertheless.
const longestTurn = 15 * time.Second

// acquire blocks until a turn is free. done ends the turn, and may be called more than once. If ctx ends before a
// turn is free, taken is false and done is nil.
func (t *Turns) acquire(ctx context.Context) (done func(), taken bool) {
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

// awaitTurn blocks until this cluster may be listed, and returns false if ctx ends before. It first waits for the list
// of Namespaces, so that a cluster whose API server does not answer occupies no turn. endTurn ends the turn.
func (s *Source) awaitTurn(ctx context.Context) bool {
	if s.Turns == nil {
		return true
	}
	if !s.awaitList(ctx, namespaces) {
		return false
	}
	done, taken := s.Turns.acquire(ctx)
	if taken {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.turn = done
	}
	return taken
}

// endTurn ends the turn of this cluster, if it has one, so that the next cluster is admitted.
func (s *Source) endTurn() {
	s.mu.Lock()
	done := s.turn
	s.turn = nil
	s.mu.Unlock()
	if done != nil {
		done()
	}
}
