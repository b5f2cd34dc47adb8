package quarantine

import (
	"slices"
	"time"
)

// maxAsked is the maximum length of group.asked.
const maxAsked = 16

// pause returns the time from a failed retry, or from the withholding, to the next retry, without jitter.
func (g *group) pause(set Settings) time.Duration {
	most := set.Keep * 4 / 5 // so that a retry comes before the version is forgotten
	pause := min(set.Pause, most)
	for range g.retries {
		if pause = min(2*pause, most); pause == most {
			break
		}
	}
	return pause
}

// Due reports whether a version of a resource should be sent as a retry, at the time now, to a proxy with the given
// version of Envoy. It returns false for a version that is not withheld. It also returns false if k has an Identity and
// the version is withheld from all proxies.
func (s *State) Due(now time.Time, k Key, envoy string) bool {
	e := s.entries[k]
	return e != nil && !s.fromAll(k, envoy) && e.isDue(now, envoy)
}

// isDue reports whether a retry on a proxy with the given version of Envoy is due. Without reports for this Envoy, a
// retry is due at once. If the version was released to this Envoy, no retry is due. In all other cases a retry is due
// from the time group.due on, unless another retry is in progress.
func (e *entry) isDue(now time.Time, envoy string) bool {
	if !e.withheld() {
		return false
	}
	g := e.group(envoy)
	return g == nil || !g.free() && g.stream == 0 && !now.Before(g.due)
}

// Best is the result of Suits for a reporter that, as far as the state shows, has neither refused the version nor had a
// retry.
const Best = 2

// Suits returns how suitable a reporter is for a retry of a version. The result is 1 if the reporter has refused the
// version or had one of the last retries, otherwise Best. The result is 0 if the reporter must have no retry, because
// its acknowledgement is stored already or there is no state about the version.
func (s *State) Suits(k Key, envoy string, by Reporter) int {
	e := s.entries[k]
	if e == nil {
		return 0
	}
	g := e.group(envoy)
	switch {
	case g == nil:
		return Best
	case slices.Contains(g.accepted, by):
		return 0
	case slices.Contains(g.reporters, by) || slices.Contains(g.asked, by):
		return 1
	}
	return Best
}

// Begin records that a version is sent on a stream as a retry. It returns false if the retry is not due, the reporter
// is not suitable, or a bound is reached. In these cases the version must not be sent. The argument stream is the
// number of the stream, above 0.
func (s *State) Begin(now time.Time, k Key, envoy string, by Reporter, stream uint64) bool {
	e := s.entries[k]
	if e == nil || !e.isDue(now, envoy) || s.Suits(k, envoy, by) == 0 {
		return false
	}
	g := e.group(envoy)
	if g == nil {
		if g = s.add(e, envoy); g == nil {
			return false
		}
	}
	g.stream, g.until = stream, now.Add(s.set.Wait)
	if g.asked = append(g.asked, by); len(g.asked) > maxAsked {
		g.asked = g.asked[1:]
	}
	s.flights[g], s.touched[e] = true, true
	return true
}

// Answered ends the retry of a version on a stream. It returns false if the stream has no such retry.
func (s *State) Answered(k Key, envoy string, stream uint64) bool {
	e := s.entries[k]
	if e == nil {
		return false
	}
	g := e.group(envoy)
	if g == nil || g.stream == 0 || g.stream != stream {
		return false
	}
	g.stream = 0
	delete(s.flights, g)
	return true
}

// Leave ends all retries on a stream that has ended. The retries count as unanswered.
func (s *State) Leave(now time.Time, stream uint64) {
	for g := range s.flights {
		if g.stream == stream {
			s.silent(g, now)
		}
	}
}

// silent ends a retry without an answer.
func (s *State) silent(g *group, now time.Time) {
	g.stream = 0
	delete(s.flights, g)
	s.unanswered++
	s.failed(g, now)
}
