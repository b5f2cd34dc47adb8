package access

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/view"
)

var (
	one, two = view.Identity{Namespace: "shop", Account: "one"}, view.Identity{Namespace: "shop", Account: "two"}
	start    = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	errAway  = errors.New("no route")
)

// clock runs a Memory in simulated time.
type clock struct {
	t   *testing.T
	m   *Memory
	now time.Time
}

func newClock(t *testing.T) *clock { return &clock{t, NewMemory(Settings{}), start} }

// asks advances the time and checks which of the wanted identities the Memory queries then.
func (c *clock) asks(after time.Duration, wanted []view.Identity, want ...view.Identity) time.Duration {
	c.t.Helper()
	c.now = c.now.Add(after)
	got, wait := c.m.Queries(slices.Values(wanted), c.now)
	if !slices.Equal(got, want) {
		c.t.Errorf("after %v: asks about %v, want %v", c.now.Sub(start), got, want)
	}
	return wait
}

func (c *clock) stands(who view.Identity, want Standing) {
	c.t.Helper()
	got := c.m.Standing(who, c.now)
	if got.Known != want.Known || got.Allowed != want.Allowed || !strings.Contains(got.Why, want.Why) || (got.Why == "") != (want.Why == "") {
		c.t.Errorf("after %v: %v stands %+v, want %+v", c.now.Sub(start), who, got, want)
	}
}

var (
	unknown = Standing{}
	yes     = Standing{Known: true, Allowed: true}
)

// An allowed answer is renewed after five minutes, a denied one after one minute. Until the new answer arrives, the old
// one applies.
func TestAnswersAreKept(t *testing.T) {
	c, both := newClock(t), []view.Identity{one, two}
	c.asks(0, both, one, two)
	c.stands(one, unknown)
	c.asks(time.Second, both) // one query at a time
	c.m.Answered(one, Answer{Allowed: true}, c.now)
	c.m.Answered(two, Answer{Why: "it may not"}, c.now)
	c.stands(one, yes)
	c.stands(two, Standing{Known: true, Why: "it may not"})
	if wait := c.asks(0, both); wait != DefaultNo-time.Second {
		t.Errorf("the next question is due in %v", wait)
	}
	c.asks(DefaultNo-2*time.Second, both)
	c.stands(two, Standing{Known: true, Why: "it may not"})
	c.asks(time.Second, both, two) // a minute after the query, not after its answer
	c.stands(two, unknown)
	c.m.Answered(two, Answer{Allowed: true}, c.now)
	c.stands(two, yes)
	c.asks(DefaultYes-DefaultNo, both, one)
	c.stands(one, unknown)
	c.m.Answered(one, Answer{Why: "no more"}, c.now)
	c.stands(one, Standing{Known: true, Why: "no more"})
}

// While the authoriser does not answer, an allowed answer applies for a day and a denied one stays denied; an identity
// without an answer is denied. Queries are repeated at growing intervals.
// Promise: security-workloads.md#identity-and-private-keys
func TestAuthoriserAway(t *testing.T) {
	c, three := newClock(t), view.Identity{Namespace: "shop", Account: "three"}
	known, all := []view.Identity{one, two}, []view.Identity{one, three, two}
	c.asks(0, known, one, two)
	c.m.Answered(one, Answer{Allowed: true}, c.now)
	c.m.Answered(two, Answer{Why: "it may not"}, c.now)
	c.asks(DefaultYes, all, all...)
	for _, who := range all {
		c.m.Failed(who, errAway, c.now)
	}
	c.stands(one, yes)
	c.stands(two, Standing{Known: true, Why: "it may not"})
	c.stands(three, Standing{Known: true, Why: "the right is not known yet: no route"})
	pauses := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}
	for _, pause := range pauses {
		c.asks(pause-1, all)
		c.asks(1, all, all...)
		for _, who := range all {
			c.m.Failed(who, errAway, c.now)
		}
	}
	c.asks(DefaultAway-c.now.Sub(start)-1, all, all...)
	for _, who := range all {
		c.m.Failed(who, errAway, c.now)
	}
	c.stands(one, yes)
	c.now = start.Add(DefaultAway)
	c.stands(one, Standing{Known: true, Why: "the right has not been confirmed for 24h0m0s"})
	c.asks(time.Minute, all, all...)
	c.m.Answered(one, Answer{Allowed: true}, c.now)
	c.m.Answered(three, Answer{Allowed: true}, c.now)
	c.stands(one, yes)
	c.stands(three, yes)
}

// The operator sets how long an allowed answer applies while the authoriser does not answer: exactly that long after
// the query for it; a day by default.
// Promise: security-workloads.md#identity-and-private-keys
func TestTimeThatAYesStands(t *testing.T) {
	for stated, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, 2 * time.Hour: 2 * time.Hour, 72 * time.Hour: 72 * time.Hour} {
		c, it := newClock(t), []view.Identity{one}
		c.m = NewMemory(Settings{Away: stated})
		c.asks(0, it, one)
		c.m.Answered(one, Answer{Allowed: true}, c.now)
		c.asks(want-1, it, one)
		c.m.Failed(one, errAway, c.now)
		c.stands(one, yes)
		c.now = c.now.Add(1)
		c.stands(one, Standing{Known: true, Why: "the right has not been confirmed for " + want.String()})
		c.asks(time.Second, nil) // the answer of an identity that is not wanted is then deleted
		if len(c.m.answers) > 0 {
			t.Errorf("%v: %v is remembered", stated, c.m.answers)
		}
	}
}

// A doubted answer is queried again at once, also if a query is in progress, since its result may be the old one. The
// known answer applies until then.
func TestDoubt(t *testing.T) {
	c, it := newClock(t), []view.Identity{one}
	c.m.Doubt(one) // there was no query for it yet
	c.asks(0, it, one)
	c.m.Doubt(one)
	c.asks(0, it)
	c.m.Answered(one, Answer{Allowed: true}, c.now)
	c.stands(one, yes)
	c.asks(0, it, one)
	c.m.Answered(one, Answer{Allowed: true}, c.now)
	c.asks(time.Second, it)
	c.m.Doubt(one)
	c.stands(one, yes)
	c.asks(0, it, one)
	c.m.Failed(one, errAway, c.now)
	c.stands(one, yes)
}

// An identity that is not wanted is not queried. Its allowed answer is kept for a day, since the authoriser may be
// unavailable when the identity is wanted again; a denied one for a minute, so that an identity that comes and goes
// causes no more queries than one that stays.
func TestForgotten(t *testing.T) {
	c, both := newClock(t), []view.Identity{one, two}
	held := func() []view.Identity { return slices.SortedFunc(maps.Keys(c.m.answers), view.Identity.Compare) }
	c.asks(0, both, one, two)
	c.m.Answered(one, Answer{Allowed: true}, c.now)
	c.m.Answered(two, Answer{}, c.now)
	c.asks(DefaultNo-1, nil)
	if !slices.Equal(held(), both) {
		t.Errorf("remembered: %v", held())
	}
	c.asks(1, nil)
	if !slices.Equal(held(), []view.Identity{one}) {
		t.Errorf("remembered: %v", held())
	}
	c.asks(DefaultAway-DefaultNo-1, nil)
	c.stands(one, unknown)
	c.asks(0, []view.Identity{one}, one)
	c.m.Failed(one, errAway, c.now)
	c.stands(one, yes)
	c.asks(1, nil)
	if len(held()) > 0 {
		t.Errorf("remembered: %v", held())
	}
	c.m.Answered(two, Answer{Allowed: true}, c.now) // too late: the identity was deleted
	c.stands(two, unknown)
}
