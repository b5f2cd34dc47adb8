package kube

import (
	"sync"
	"time"
)

// watchProgress holds when the watch of each kind last delivered an event or a bookmark (one a minute).
type watchProgress struct {
	mu sync.Mutex // a leaf
	at map[kindID]time.Time
}

// record records that a watch delivered something that came at a time, and that was emitted.
func (p *watchProgress) record(kind kindID, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[kindID]time.Time{}
	}
	p.at[kind] = at
}

// ReadUntil returns the time up to which all Pods, ServiceAccounts and Namespaces of the API server have been emitted,
// as far as its watches report; zero: they have not been emitted yet. ServiceAccounts do not count where another
// cluster refuses to list them. everywhere: those of all namespaces are read.
func (s *Source) ReadUntil() (until time.Time, everywhere bool) {
	s.mu.Lock()
	refused := s.refusedKinds()
	synced, only := s.emittedSynced, s.selection.only != "" || len(s.selection.selectors) > 0
	s.mu.Unlock()
	if !synced {
		return time.Time{}, false
	}
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	for i, kind := range []string{"Pod", "ServiceAccount", "Namespace"} {
		if refused[kind] {
			continue
		}
		at := s.progress.at[kindID{kind: kind}]
		if at.IsZero() {
			return time.Time{}, false
		}
		if i == 0 || at.Before(until) {
			until = at
		}
	}
	return until, !only
}

// Runs reports whether the cluster is being read.
func (s *Source) Runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.began.IsZero()
}

// Age returns how long the API server has delivered nothing, or not yet everything, of Pods, ServiceAccounts and
// Namespaces; 0: the cluster is not being read.
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

// Accounts reports whether ServiceAccounts may be read, so that ReadUntil covers them.
func (s *Source) Accounts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.refusedKinds()["ServiceAccount"]
}

// refusedKinds returns the optional kinds that the API server refuses to list. The caller has the lock.
func (s *Source) refusedKinds() map[string]bool {
	refused := map[string]bool{}
	for f := range s.followers() {
		refused[f.kind.kind] = f.refused >= refusals
	}
	return refused
}
