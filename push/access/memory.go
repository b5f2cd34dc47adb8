package access

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/view"
)

// Settings say how long answers stand.
type Settings struct {
	Yes  time.Duration // until it is asked again; 0: DefaultYes
	No   time.Duration // until it is asked again; 0: DefaultNo
	Away time.Duration // how long the last yes stands from when it was asked for, while the authoriser cannot say; 0: DefaultAway
}

// The default settings (issue 12).
const (
	DefaultYes  = 5 * time.Minute
	DefaultNo   = time.Minute
	DefaultAway = 24 * time.Hour
)

// The pauses before an authoriser that could not say is asked again: the first, doubled by each further failure, and the longest.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// Standing is the right of one identity at a moment. Comparable.
type Standing struct {
	Known   bool   // false: nobody has asked yet, or the answer is too old and is being asked for
	Allowed bool   // only where it is known
	Why     string // for people: why it is not allowed
}

// Memory keeps what an authoriser said, one answer for each identity. It has no clock: the caller says what time it is. Not safe for
// concurrent use.
type Memory struct {
	settings Settings
	answers  map[view.Identity]*remembered
}

// remembered is what is known of one identity.
type remembered struct {
	answer   Answer
	at       time.Time // when the answer was asked for; zero: there was none
	failures int       // since then, in a row
	failed   time.Time // when the last of them was
	err      error     // of it
	asking   time.Time // when the question was asked that goes on; zero: none does
	doubted  bool      // to be asked again at once
}

// NewMemory remembers nothing yet.
func NewMemory(s Settings) *Memory {
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{{&s.Yes, DefaultYes}, {&s.No, DefaultNo}, {&s.Away, DefaultAway}} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	return &Memory{settings: s, answers: map[view.Identity]*remembered{}}
}

// Standing is what is known of an identity now.
func (m *Memory) Standing(who view.Identity, now time.Time) Standing {
	r := m.answers[who]
	if r == nil {
		return Standing{}
	}
	said, age := !r.at.IsZero(), now.Sub(r.at)
	switch {
	case said && age < m.keep(r):
		return Standing{Known: true, Allowed: r.answer.Allowed, Why: r.answer.Why}
	case r.failures == 0:
		return Standing{}
	case !said:
		return Standing{Known: true, Why: fmt.Sprintf("nobody can say yet whether it may: %v", r.err)}
	case !r.answer.Allowed:
		return Standing{Known: true, Why: r.answer.Why}
	case age < m.settings.Away:
		return Standing{Known: true, Allowed: true}
	}
	return Standing{Known: true, Why: fmt.Sprintf("nobody can say since %v whether it still may: %v", m.settings.Away, r.err)}
}

// keep is how long an answer stands without another.
func (m *Memory) keep(r *remembered) time.Duration {
	if r.answer.Allowed {
		return m.settings.Yes
	}
	return m.settings.No
}

// Ask takes the identities that the authoriser is to be asked about now, of those that are wanted, and says how long until there
// may be more. Answered or Failed ends each question. What is too old to matter, and not wanted, is forgotten.
func (m *Memory) Ask(wanted iter.Seq[view.Identity], now time.Time) (questions []view.Identity, wait time.Duration) {
	wait = time.Hour
	want := map[view.Identity]bool{}
	for who := range wanted {
		want[who] = true
		r := m.answers[who]
		if r == nil {
			r = &remembered{}
			m.answers[who] = r
		}
		if !r.asking.IsZero() {
			continue
		}
		if in := m.due(r).Sub(now); in > 0 && !r.doubted {
			wait = min(wait, in)
			continue
		}
		r.asking, r.doubted = now, false
		questions = append(questions, who)
	}
	maps.DeleteFunc(m.answers, func(who view.Identity, r *remembered) bool {
		old := !m.due(r).After(now)
		if r.answer.Allowed {
			old = now.Sub(r.at) >= m.settings.Away
		}
		return !want[who] && r.asking.IsZero() && old
	})
	slices.SortFunc(questions, view.Identity.Compare)
	return questions, wait
}

// due is when an identity is to be asked about again.
func (m *Memory) due(r *remembered) time.Time {
	switch {
	case r.failures > 0:
		return r.failed.Add(min(firstPause<<min(r.failures-1, 10), longestPause))
	case r.at.IsZero():
		return time.Time{}
	}
	return r.at.Add(m.keep(r))
}

// Doubt has an identity asked about again at once: something has changed that its right may hang on. What stands, stands until then;
// an answer to a question that goes on may be the old one, and is asked for again.
func (m *Memory) Doubt(who view.Identity) {
	if r := m.answers[who]; r != nil {
		r.doubted = true
	}
}

// Answered ends a question with an answer, which counts from when it was asked.
func (m *Memory) Answered(who view.Identity, a Answer, now time.Time) {
	if r := m.answers[who]; r != nil {
		*r = remembered{answer: a, at: r.asking, doubted: r.doubted}
		if r.at.IsZero() { // nobody has asked
			r.at = now
		}
	}
}

// Failed ends a question without one.
func (m *Memory) Failed(who view.Identity, err error, now time.Time) {
	if r := m.answers[who]; r != nil {
		r.failures, r.failed, r.err, r.asking = r.failures+1, now, err, time.Time{}
	}
}
