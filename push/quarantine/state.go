package quarantine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Settings are the parameters of the rules. Zero and negative values mean the defaults.
type Settings struct {
	Quorum int           // number of identities (credentials for Key.Identity) whose refusals withhold a version, at most 16; 0: 3
	Keep   time.Duration // time for which a refusal counts; 0: DefaultKeep
	Pause  time.Duration // time from the withholding to the first retry; doubles up to 4/5 of Keep; 0: DefaultPause
	Wait   time.Duration // time after which a retry counts as unanswered; 0: 2 min
	// Jitter returns a number from 0 to 1 for each pause. The pause is longer by this number times 1/8, so that
	// replicas do not retry at the same time. nil: random numbers.
	Jitter func() float64
}

// These are defaults of Settings.
const (
	DefaultKeep  = 10 * time.Minute
	DefaultPause = time.Minute
)

// These bound the state, because reporters are untrusted.
const (
	maxVersions   = 8192 // versions of resources
	maxOfReporter = 256  // versions that one identity has refused, and versions withheld from its proxies alone
	// maxOfShare is the maximum number of versions for which one credential has made the first refusal of its
	// identity. In state about the proxies of one identity alone, it is the maximum number of versions that one
	// credential has refused.
	maxOfShare   = 64
	maxEnvoys    = 8    // versions of Envoy with state about one version of a resource
	maxOfEnvoys  = 2    // versions of Envoy for which one identity has refused a version
	maxReporters = 16   // identities that refused one version with one version of Envoy
	maxResumed   = 4096 // releases that Resumed has not returned yet
	maxSeen      = 64   // versions that are examined to find an old one that a new one replaces
)

// Decision is a decision about a version.
type Decision uint8

// The decisions.
const (
	Withhold Decision = iota // a version is withheld from now on
	Release                  // the withholding ended because proxies acknowledged the version
	Expire                   // the withholding ended because there was no refusal for Settings.Keep
)

// String returns the name of the decision for metrics and logs: withheld, acknowledged or not_refused_again.
func (d Decision) String() string {
	return [...]string{Withhold: "withheld", Release: "acknowledged", Expire: "not_refused_again"}[d]
}

// Event is a decision with its version. For Release and Expire, Withheld describes the version just before its release.
type Event struct {
	Decision Decision
	Withheld Withheld
}

// State is the quarantine as a state machine, whose inputs are reports and whose outputs are decisions (Decided). It
// has no clock, and is not safe for concurrent use.
type State struct {
	set        Settings
	entries    map[Key]*entry
	refused    map[Reporter]int    // number of entries that a reporter has refused
	shares     map[Credential]int  // number of entries that a credential was the first of its identity to refuse
	own        map[string]int      // number of entries about the proxies of each identity alone
	active     int                 // number of entries whose withholding was reported
	views      map[string][]*entry // entries whose withholding was reported, by view
	flights    map[*group]bool     // groups with a retry in progress
	touched    map[*entry]bool     // entries that changed since the last Decided
	unanswered int                 // retries without an answer since the last Decided
	resumed    []Key               // versions released since the last Resumed
}

// NewState returns a State without withheld versions. Zero and negative fields of set mean the defaults.
func NewState(set Settings) *State {
	if set.Quorum <= 0 {
		set.Quorum = 3
	}
	set.Quorum = min(set.Quorum, maxReporters)
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&set.Keep, DefaultKeep}, {&set.Pause, DefaultPause}, {&set.Wait, 2 * time.Minute}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if set.Jitter == nil {
		set.Jitter = rand.Float64
	}
	return &State{set: set, entries: map[Key]*entry{}, views: map[string][]*entry{}, refused: map[Reporter]int{},
		shares: map[Credential]int{}, own: map[string]int{}, flights: map[*group]bool{}, touched: map[*entry]bool{}}
}

// Empty reports whether the State has no state of any version.
func (s *State) Empty() bool { return len(s.entries) == 0 }

// Active returns the number of withheld versions at the last Decided.
func (s *State) Active() int { return s.active }

// Remembers reports whether there is state about a version, so that reports about it still count.
func (s *State) Remembers(k Key) bool { return s.entries[k] != nil }

// Apply processes a report. r.At must not be zero or in the future. An acknowledgement of a version without state has
// no effect. A report beyond a bound has no effect on the withholding. A report that is more than Settings.Keep older
// than the newest report for its version of Envoy has no effect either.
func (s *State) Apply(r Report) {
	e := s.entries[r.Key]
	if e == nil {
		if e = s.enter(r); e == nil {
			return
		}
	}
	s.touched[e] = true
	if e.text == "" && !r.Accepted {
		e.text = r.Text
	}
	if len(e.objects) == 0 {
		e.objects = r.Objects
	}
	e.namespace = cmp.Or(e.namespace, r.Namespace)
	g := e.group(r.Envoy)
	if g != nil && r.At.Add(s.set.Keep).Before(g.newest()) {
		return
	}
	if g == nil {
		if !r.Accepted && !s.admits(e, r) {
			return
		}
		if g = s.add(e, r.Envoy); g == nil {
			return
		}
	}
	if r.Accepted {
		s.accept(e, g, r)
	} else {
		s.refuse(e, g, r)
	}
}

// enter adds an entry for a refusal. It returns nil if the report is not a refusal, or if a bound is reached.
func (s *State) enter(r Report) *entry {
	own := r.Key.Identity
	if r.Accepted || !s.room(r) || s.own[own] >= maxOfReporter {
		return nil
	}
	if len(s.entries) >= maxVersions {
		var oldest *entry // the oldest of a few entries, because examining all entries is too expensive
		seen := 0
		for _, e := range s.entries {
			if seen++; seen > maxSeen {
				break
			}
			if !e.reported && !e.withheld() && (oldest == nil || e.newest().Before(oldest.newest())) {
				oldest = e
			}
		}
		if oldest == nil {
			return nil
		}
		s.forget(oldest)
	}
	e := &entry{key: r.Key}
	if s.entries[r.Key] = e; own != "" {
		s.own[own]++
	}
	return e
}

// add adds the group of a version of Envoy to an entry. If there are too many groups, it removes the group with the
// fewest reporters. It returns nil if no group may be removed, because all withhold the version or have a retry.
func (s *State) add(e *entry, envoy string) *group {
	if len(e.groups) >= maxEnvoys {
		least := -1
		for i, g := range e.groups {
			if g.withheld || g.stream != 0 {
				continue
			}
			if least < 0 || cmp.Or(len(g.reporters)-len(e.groups[least].reporters), g.newest().Compare(e.groups[least].newest())) < 0 {
				least = i
			}
		}
		if least < 0 {
			return nil
		}
		s.remove(e, e.groups[least])
	}
	g := &group{envoy: envoy}
	e.groups = append(e.groups, g)
	return g
}

// refuse adds a refusal to a group of an entry, and withholds the version if the quorum is complete. A refusal has no
// effect if it was made before the last release, or if a bound is reached.
func (s *State) refuse(e *entry, g *group, r Report) {
	if !r.At.After(g.released) {
		return // the version was released after the refusal
	}
	known := slices.Contains(g.reporters, r.Reporter) || len(g.reporters) >= maxReporters
	if !known {
		if !s.admits(e, r) {
			return
		}
		if e.groupsOf(r.Reporter) == 0 {
			s.charge(e, r)
		}
		g.reporters = append(g.reporters, r.Reporter)
	}
	if g.withheld && known && !r.Retry {
		return
	}
	if g.first.IsZero() || r.At.Before(g.first) {
		g.first = r.At
	}
	if r.At.After(g.last) {
		g.last, g.accepted = r.At, nil
	}
	// A refusal within half a pause after base belongs to another replica's retry in the same round.
	if g.withheld && r.Retry && r.At.Sub(g.base) >= g.pause(s.set)/2 {
		s.failed(g, r.At)
	}
	if !g.withheld && len(g.reporters) >= s.set.Quorum {
		g.withheld, g.doubted, g.base = true, !g.released.IsZero(), g.last
		g.due = s.dueAfter(g)
	}
}

// accept processes an acknowledgement, and releases the version if the acknowledgements suffice (see the package's
// comment).
func (s *State) accept(e *entry, g *group, r Report) {
	if !r.At.After(g.last) || g.free() {
		return
	}
	if g.doubted || slices.Contains(g.reporters, r.Reporter) {
		if !slices.Contains(g.accepted, r.Reporter) {
			g.accepted = append(g.accepted, r.Reporter)
		}
		if g.due = r.At; len(g.accepted) < s.set.Quorum {
			return
		}
	}
	e.ends(Release)
	s.clear(e, g)
	g.withheld, g.released = false, r.At
	s.resume(e.key)
}

// failed records that a retry failed, and delays the next one.
func (s *State) failed(g *group, at time.Time) {
	g.retries++
	g.base = at
	g.due = s.dueAfter(g)
}

// dueAfter returns the time of a group's next retry.
func (s *State) dueAfter(g *group) time.Time {
	pause := g.pause(s.set)
	return g.base.Add(pause + time.Duration(s.set.Jitter()*float64(pause)/8))
}

// Merge processes reports of other replicas, in the order of their times. A time after now counts as now. Merge does
// not change the slice.
func (s *State) Merge(now time.Time, reports []Report) {
	reports = slices.Clone(reports)
	slices.SortStableFunc(reports, func(a, b Report) int { return a.At.Compare(b.At) })
	for _, r := range reports {
		if r.At.After(now) {
			r.At = now // from another machine's clock
		}
		if e := s.entries[r.Key]; e != nil {
			s.lapse(e, r.At)
		}
		s.Apply(r)
	}
}

// Tick ends retries whose time for an answer is over. It also marks all entries, so that the next Decided removes
// expired state.
func (s *State) Tick(now time.Time) {
	for g := range s.flights {
		if !now.Before(g.until) {
			s.silent(g, now)
		}
	}
	for _, e := range s.entries {
		s.touched[e] = true
	}
}

// Decided removes expired state of the versions that changed since the last call, or of all versions after Tick. It
// returns the decisions about these versions, sorted by key, and the number of retries that ended without an answer
// since the last call.
func (s *State) Decided(now time.Time) (events []Event, unanswered int) {
	for e := range s.touched {
		s.lapse(e, now)
		if len(e.groups) == 0 {
			s.drop(e)
		}
		if e.reported == e.withheld() {
			continue
		}
		if e.reported = e.withheld(); e.reported {
			s.active++
			s.views[e.key.View] = append(s.views[e.key.View], e)
			events = append(events, Event{Withhold, e.listing()})
		} else {
			s.active--
			if left := slices.DeleteFunc(s.views[e.key.View], func(o *entry) bool { return o == e }); len(left) > 0 {
				s.views[e.key.View] = left
			} else {
				delete(s.views, e.key.View)
			}
			events = append(events, Event{e.ended, e.last})
		}
	}
	clear(s.touched)
	slices.SortFunc(events, func(a, b Event) int { return byKey(a.Withheld, b.Withheld) })
	unanswered, s.unanswered = s.unanswered, 0
	return events, unanswered
}

// Withheld returns the withheld versions, sorted by view, type, name, version and identity. It returns nil if no
// version is withheld.
func (s *State) Withheld() (all []Withheld) {
	for _, e := range s.entries {
		if e.withheld() {
			all = append(all, e.listing())
		}
	}
	slices.SortFunc(all, byKey)
	return all
}

// byKey compares withheld versions by their keys.
func byKey(a, b Withheld) int {
	return cmp.Or(cmp.Compare(a.View, b.View), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version),
		cmp.Compare(a.Identity, b.Identity))
}

// Resumed returns the versions whose withholding ended since the last call, by acknowledgements or because it expired.
// It returns each version once, and at most 4096 versions. Further versions are dropped.
func (s *State) Resumed() []Key {
	all := s.resumed
	s.resumed = nil
	return all
}

// resume adds a released version to the result of Resumed, once and up to maxResumed versions.
func (s *State) resume(k Key) {
	if len(s.resumed) < maxResumed && !slices.Contains(s.resumed, k) {
		s.resumed = append(s.resumed, k)
	}
}

// lapse removes the expired groups of an entry. A release to one version of Envoy does not expire while the version is
// withheld from another Envoy.
func (s *State) lapse(e *entry, now time.Time) {
	for _, g := range slices.Clone(e.groups) {
		if g.stream != 0 || g.free() && e.withheld() || now.Before(g.newest().Add(s.set.Keep)) {
			continue
		}
		if g.withheld && e.reported {
			e.ends(Expire)
			s.resume(e.key)
		}
		s.remove(e, g)
	}
}

// forget removes an entry with all its groups.
func (s *State) forget(e *entry) {
	for _, g := range slices.Clone(e.groups) {
		s.remove(e, g)
	}
	s.drop(e)
}

// remove removes a group of an entry, with its reporters.
func (s *State) remove(e *entry, g *group) {
	s.clear(e, g)
	e.groups = slices.DeleteFunc(e.groups, func(o *group) bool { return o == g })
}

// clear forgets the reporters of a group.
func (s *State) clear(e *entry, g *group) {
	reporters := g.reporters
	g.reporters, g.accepted = nil, nil
	for _, by := range reporters {
		if e.groupsOf(by) == 0 {
			s.discharge(e, by)
		}
	}
}
