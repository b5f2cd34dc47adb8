package kube

import (
	"context"
	"sync"
	"time"
)

// Turns bounds how many clusters are listed for the first time concurrently, and thereby the memory for incomplete
// lists. It is safe for concurrent use.
type Turns struct{ places chan struct{} }

// NewTurns returns a Turns that admits the given number of clusters at once.
func NewTurns(atOnce int) *Turns { return &Turns{make(chan struct{}, atOnce)} }

// longestTurn is the time limit of a turn. After it a cluster whose API server does not answer continues its lists, and
// the next cluster is admitted.
const longestTurn = 15 * time.Second

// acquire waits for a turn. done ends the turn, and may be called more than once. taken is false if ctx ended before.
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

// awaitTurn blocks until this cluster may be listed, and reports false if ctx ended before. It first waits for the list
// of Namespaces, so a cluster whose API server does not answer occupies no turn. endTurn ends the turn.
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

// endTurn admits the next cluster, after the first lists of this one, or after its end.
func (s *Source) endTurn() {
	s.mu.Lock()
	done := s.turn
	s.turn = nil
	s.mu.Unlock()
	if done != nil {
		done()
	}
}
