package quarantine

import (
	"bytes"
	"slices"
	"time"

	"navarch.io/navarch/store/model"
)

// entry is the state of one version of a resource, which a Key identifies.
type entry struct {
	key       Key
	namespace string
	text      string
	objects   []model.Place
	groups    []*group // one for each version of Envoy
	reported  bool     // State.Decided has reported the withholding
	ended     Decision // reason for the end of the last withholding from a version of Envoy
	last      Withheld // description of the entry before that end

	charged map[Reporter]Credential // maps an identity to the credential of its first refusal, if not zero
}

// ends records the reason why a withholding is about to end. If the version is not withheld, it does nothing.
func (e *entry) ends(why Decision) {
	if e.withheld() {
		e.ended, e.last = why, e.listing()
	}
}

// group returns the group of a version of Envoy, or nil.
func (e *entry) group(envoy string) *group {
	for _, g := range e.groups {
		if g.envoy == envoy {
			return g
		}
	}
	return nil
}

// groupsOf counts the groups of a reporter.
func (e *entry) groupsOf(by Reporter) (n int) {
	for _, g := range e.groups {
		if slices.Contains(g.reporters, by) {
			n++
		}
	}
	return n
}

// withheld reports whether the version is withheld from any version of Envoy.
func (e *entry) withheld() bool {
	for _, g := range e.groups {
		if g.withheld {
			return true
		}
	}
	return false
}

// newest returns the time of the newest report in any group.
func (e *entry) newest() (at time.Time) {
	for _, g := range e.groups {
		if n := g.newest(); n.After(at) {
			at = n
		}
	}
	return at
}

// listing describes the entry for operators. It combines the groups of the versions of Envoy from which the version is
// withheld.
func (e *entry) listing() Withheld {
	w := Withheld{Key: e.key, Namespace: e.namespace, Text: e.text, Objects: e.objects}
	var by []Reporter
	for _, g := range e.groups {
		if !g.withheld {
			continue
		}
		w.Envoys = append(w.Envoys, g.envoy)
		by = append(by, g.reporters...)
		if w.First.IsZero() || g.first.Before(w.First) {
			w.First = g.first
		}
		if g.last.After(w.Last) {
			w.Last = g.last
		}
		if w.Next.IsZero() || g.due.Before(w.Next) {
			w.Next = g.due
		}
	}
	slices.Sort(w.Envoys)
	slices.SortFunc(by, func(a, b Reporter) int { return bytes.Compare(a[:], b[:]) })
	w.RefusedBy = len(slices.Compact(by))
	return w
}

// group is the state of a version among the proxies with one version of Envoy.
type group struct {
	envoy       string
	reporters   []Reporter // reporters that refused the version since its last release
	accepted    []Reporter // reporters that acknowledged a retry since the last refusal; used if one acknowledgement does not suffice
	first, last time.Time  // times of the first and last refusal
	released    time.Time  // refusals up to this time do not count; zero: never released
	withheld    bool
	doubted     bool // a quorum has refused the version after a release

	retries int        // number of failed retries
	base    time.Time  // time of the last failed retry, or of the withholding
	due     time.Time  // time of the next retry
	stream  uint64     // the stream with a retry in progress; 0: none
	until   time.Time  // deadline of the retry's answer
	asked   []Reporter // reporters that had a retry, the newest last; bounded by maxAsked
}

// free reports whether the version was released and has not been withheld again since.
func (g *group) free() bool { return !g.withheld && !g.released.IsZero() }

// newest returns the time of the last refusal or release. Without a refusal and a release, it returns base.
func (g *group) newest() time.Time {
	switch {
	case g.last.IsZero() && g.released.IsZero():
		return g.base
	case g.last.After(g.released):
		return g.last
	}
	return g.released
}
