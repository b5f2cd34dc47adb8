package quarantine

import (
	"bytes"
	"slices"
	"time"

	"navarch.io/navarch/store/model"
)

// entry is what is known of a version.
type entry struct {
	key       Key
	namespace string
	text      string
	objects   []model.Place
	groups    []*group // one for each version of Envoy
	reported  bool     // it was said that it is withheld
	ended     Decision // why it is withheld no more from the version of Envoy that it was withheld from last
	last      Withheld // as it was before

	charged map[Reporter]Credential // what each identity had shown that refused it first, where that is told apart
}

func (e *entry) ends(why Decision) {
	if e.withheld() {
		e.ended, e.last = why, e.listing()
	}
}

func (e *entry) group(envoy string) *group {
	for _, g := range e.groups {
		if g.envoy == envoy {
			return g
		}
	}
	return nil
}

// groupsOf counts the groups that a reporter is in.
func (e *entry) groupsOf(by Reporter) (n int) {
	for _, g := range e.groups {
		if slices.Contains(g.reporters, by) {
			n++
		}
	}
	return n
}

func (e *entry) withheld() bool {
	for _, g := range e.groups {
		if g.withheld {
			return true
		}
	}
	return false
}

func (e *entry) newest() (at time.Time) {
	for _, g := range e.groups {
		if n := g.newest(); n.After(at) {
			at = n
		}
	}
	return at
}

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

// group is what is known of a version among the proxies that run one version of Envoy.
type group struct {
	envoy       string
	reporters   []Reporter // who refused it since it was released last
	accepted    []Reporter // who acknowledged a retry since the last refusal, and did not suffice alone
	first, last time.Time  // refusals
	released    time.Time  // refusals until then do not count; zero: it never was
	withheld    bool
	doubted     bool // a quorum has refused it after it was released

	retries int       // that failed
	base    time.Time // when the last of them did, or when it was withheld
	due     time.Time // the next one
	stream  uint64    // that is sent a retry; 0: none
	until   time.Time // by which it answers
	asked   []Reporter
}

// free says that it was released, and not refused by a quorum since.
func (g *group) free() bool { return !g.withheld && !g.released.IsZero() }

// newest is when it was refused or released last; where it never was, when a retry failed.
func (g *group) newest() time.Time {
	switch {
	case g.last.IsZero() && g.released.IsZero():
		return g.base
	case g.last.After(g.released):
		return g.last
	}
	return g.released
}
