package kube

import (
	"sync"
	"time"
)

// heard is when a watch of each kind last said something, be it a bookmark (one a minute).
type heard struct {
	mu sync.Mutex // a leaf
	at map[kindID]time.Time
}

// note takes down that a watch has said something that came at a time, and that was passed on.
func (h *heard) note(kind kindID, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = map[kindID]time.Time{}
	}
	h.at[kind] = at
}

// ReadUntil says up to when all Pods, ServiceAccounts and Namespaces that there were have been emitted, as far as the API server's watches say; zero: they have
// not been emitted yet. A ServiceAccount that another cluster does not let us read does not count. everywhere: those of all namespaces.
func (s *Source) ReadUntil() (until time.Time, everywhere bool) {
	s.mu.Lock()
	refused := s.refusedKinds()
	synced, only := s.emittedSynced, s.selection.only != "" || len(s.selection.selectors) > 0
	s.mu.Unlock()
	if !synced {
		return time.Time{}, false
	}
	s.heard.mu.Lock()
	defer s.heard.mu.Unlock()
	for i, kind := range []string{"Pod", "ServiceAccount", "Namespace"} {
		if refused[kind] {
			continue
		}
		at := s.heard.at[kindID{kind: kind}]
		if at.IsZero() {
			return time.Time{}, false
		}
		if i == 0 || at.Before(until) {
			until = at
		}
	}
	return until, !only
}

// Runs says whether this is being read.
func (s *Source) Runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.began.IsZero()
}

// Age is for how long the API server has said nothing, or not yet everything, of Pods, ServiceAccounts and Namespaces while this runs; 0: it does not run.
func (s *Source) Age(now time.Time) time.Duration {
	s.mu.Lock()
	since := s.began
	s.mu.Unlock()
	if since.IsZero() {
		return 0
	}
	if until, _ := s.ReadUntil(); !until.IsZero() {
		since = until
	}
	return max(now.Sub(since), 0)
}

// Accounts says whether ServiceAccounts may be read, so that ReadUntil is about them too.
func (s *Source) Accounts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.refusedKinds()["ServiceAccount"]
}

// refusedKinds are the optional kinds that may not be read. With the lock.
func (s *Source) refusedKinds() map[string]bool {
	refused := map[string]bool{}
	for f := range s.followers() {
		refused[f.kind.kind] = f.refused >= refusals
	}
	return refused
}
