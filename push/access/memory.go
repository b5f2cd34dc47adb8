package access

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/view"
)

// Settings are the times for which a Memory uses answers of an authoriser. All times count from the beginning of the
// answer's query.
type Settings struct {
	Yes time.Duration // time after which a positive answer is queried again; 0 or less: DefaultYes
	No  time.Duration // time after which a negative answer is queried again; 0 or less: DefaultNo
	// Away is the time for which the last positive answer is used while queries fail; 0 or less: DefaultAway.
	Away time.Duration
}

// Defaults of the fields of Settings.
const (
	DefaultYes  = 5 * time.Minute
	DefaultNo   = time.Minute
	DefaultAway = 24 * time.Hour
)

// Pauses before a failed query is repeated. Each further failure doubles the pause.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// Standing states whether an identity may list the Secrets of its namespace (its right), as known at one time. It is
// comparable.
type Standing struct {
	// Known is false before the first query has ended. After an answer is outdated, Known is false until the next query
	// has ended.
	Known   bool
	Allowed bool   // true only if Known is true
	Why     string // reason of a refusal, for operators; empty if Known is false or Allowed is true
}

// Memory stores the answers of an authoriser, one for each identity. Make it with NewMemory. The caller passes the
// present time to its methods. It is not safe for concurrent use.
type Memory struct {
	settings Settings
	answers  map[view.Identity]*state
}

// state holds the last answer about one identity, and the failures of later queries.
type state struct {
	answer   Answer
	at       time.Time // time of the query that gave the answer; zero before the first answer
	failures int       // number of failures since the answer
	failed   time.Time // time of the last failure
	err      error     // the last failure
	inFlight time.Time // time at which the running query began; zero: no query runs
	doubted  bool      // the next Queries must return the identity
}

// NewMemory returns a Memory without answers. Fields of s that are zero or negative mean the defaults.
func NewMemory(s Settings) *Memory {
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{{&s.Yes, DefaultYes}, {&s.No, DefaultNo}, {&s.Away, DefaultAway}} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	return &Memory{settings: s, answers: map[view.Identity]*state{}}
}

// Standing returns the right of an identity at the time now. A positive answer decides until it is as old as
// Settings.Yes, a negative answer until it is as old as Settings.No. Afterwards the right is unknown until the next
// query has ended. If that query fails, the identity is allowed only if its last answer is positive and younger than
// Settings.Away.
func (m *Memory) Standing(who view.Identity, now time.Time) Standing {
	r := m.answers[who]
	if r == nil {
		return Standing{}
	}
	answered, age := !r.at.IsZero(), now.Sub(r.at)
	switch {
	case answered && age < m.validity(r):
		return Standing{Known: true, Allowed: r.answer.Allowed, Why: r.answer.Why}
	case r.failures == 0:
		return Standing{}
	case !answered:
		return Standing{Known: true, Why: fmt.Sprintf("the right is not known yet: %v", r.err)}
	case !r.answer.Allowed:
		return Standing{Known: true, Why: r.answer.Why}
	case age < m.settings.Away:
		return Standing{Known: true, Allowed: true}
	}
	return Standing{Known: true, Why: fmt.Sprintf("the right has not been confirmed for %v: %v", m.settings.Away, r.err)}
}

// validity returns the time after which an answer is queried again.
func (m *Memory) validity(r *state) time.Duration {
	if r.answer.Allowed {
		return m.settings.Yes
	}
	return m.settings.No
}

// Queries returns the wanted identities about which the authoriser must be queried now, sorted; nil: no query is due.
// The caller must call Answered or Failed for each returned identity. Until then Queries does not return the identity
// again. The result wait is the time after which Queries may return further identities, at most an hour.
//
// Queries also drops old answers of identities that are not wanted. A positive answer is old after Settings.Away. Any
// other answer is old when its next query would be due.
func (m *Memory) Queries(wanted iter.Seq[view.Identity], now time.Time) (queries []view.Identity, wait time.Duration) {
	wait = time.Hour
	want := map[view.Identity]bool{}
	for who := range wanted {
		want[who] = true
		r := m.answers[who]
		if r == nil {
			r = &state{}
			m.answers[who] = r
		}
		if !r.inFlight.IsZero() {
			continue
		}
		if in := m.due(r).Sub(now); in > 0 && !r.doubted {
			wait = min(wait, in)
			continue
		}
		r.inFlight, r.doubted = now, false
		queries = append(queries, who)
	}
	maps.DeleteFunc(m.answers, func(who view.Identity, r *state) bool {
		old := !m.due(r).After(now)
		if r.answer.Allowed {
			old = now.Sub(r.at) >= m.settings.Away
		}
		return !want[who] && r.inFlight.IsZero() && old
	})
	slices.SortFunc(queries, view.Identity.Compare)
	return queries, wait
}

// due returns the time at which an identity must be queried again.
func (m *Memory) due(r *state) time.Time {
	switch {
	case r.failures > 0:
		return r.failed.Add(min(firstPause<<min(r.failures-1, 10), longestPause))
	case r.at.IsZero():
		return time.Time{}
	}
	return r.at.Add(m.validity(r))
}

// Doubt makes the next Queries return an identity if it is wanted, because its right may have changed. Until the next
// answer, the present answer remains in use. If a query about the identity is running, Queries returns the identity
// again after this query has ended. For an identity without an answer or a query, Doubt does nothing.
func (m *Memory) Doubt(who view.Identity) {
	if r := m.answers[who]; r != nil {
		r.doubted = true
	}
}

// Answered stores the answer of a query about an identity that Queries returned. The age of the answer counts from the
// time at which the query began, or from now if no query is running. For an unknown identity, Answered does nothing.
func (m *Memory) Answered(who view.Identity, a Answer, now time.Time) {
	if r := m.answers[who]; r != nil {
		*r = state{answer: a, at: r.inFlight, doubted: r.doubted}
		if r.at.IsZero() { // no query was running
			r.at = now
		}
	}
}

// Failed records that a query failed with err at the time now. The last answer stays. The query is repeated after a
// pause of 1 s, which doubles with each further failure, up to a minute. For an unknown identity, Failed does nothing.
func (m *Memory) Failed(who view.Identity, err error, now time.Time) {
	if r := m.answers[who]; r != nil {
		r.failures, r.failed, r.err, r.inFlight = r.failures+1, now, err, time.Time{}
	}
}
