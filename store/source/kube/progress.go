package kube

import (
	"sync"
	"time"
)

// watchProgress records, for each kind, when its watch last delivered an event or a bookmark (one a minute).
type watchProgress struct {
	mu sync.Mutex // guards at; no other lock is taken while it is held
	at map[kindID]time.Time
}

// record records that an event of a kind arrived at the given time, so that all earlier events of the kind were
// received.
func (p *watchProgress) record(kind kindID, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[kindID]time.Time{}
	}
	p.at[kind] = at
}

// ReadUntil returns the time up to which all changes of Pods, ServiceAccounts and Namespaces were read. Run emits the
// last of these changes a little later (Config.Quiet). The time is the oldest of the times at which the watches of
// these kinds last delivered an event or a bookmark. The zero time means that Synced is not emitted yet, that one of
// these watches has delivered nothing yet, or that Run is not running.
//
// The method Accounts reports whether ServiceAccounts are included. The result everywhere reports whether all
// namespaces are read. If until is the zero time, everywhere is false. ReadUntil is safe for concurrent use.
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

// Runs reports whether Run is running. It is safe for concurrent use.
func (s *Source) Runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.began.IsZero()
}

// Age returns the time from ReadUntil to now, or from the start of Run if ReadUntil returns the zero time. It is 0
// while Run is not running. It is safe for concurrent use.
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

// Accounts reports whether ReadUntil covers ServiceAccounts. It is false after the API server of another cluster has
// forbidden three lists of ServiceAccounts in a row. It is safe for concurrent use.
func (s *Source) Accounts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.refusedKinds()["ServiceAccount"]
}

// refusedKinds returns the optional kinds that the API server refuses to list. The caller has locked Source.mu.
func (s *Source) refusedKinds() map[string]bool {
	refused := map[string]bool{}
	for f := range s.followers() {
		refused[f.kind.kind] = f.refused >= refusals
	}
	return refused
}
