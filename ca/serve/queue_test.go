package serve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func testQueue(t *testing.T, edit func(*Limits)) *queue {
	t.Helper()
	l := Limits{Signing: 1}
	if edit != nil {
		edit(&l)
	}
	if err := l.fill(); err != nil {
		t.Fatal(err)
	}
	return newQueue(l)
}

// ask is a request of an identity, or of a credential of one (identity/credential).
func ask(who string, first bool, patience time.Duration) *ticket {
	identity, credential, _ := strings.Cut(who, "/")
	return &ticket{holder: holder{identity, credential}, first: first, deadline: epoch.Add(patience), expiry: codes.DeadlineExceeded}
}

func (h holder) String() string { return strings.TrimSuffix(h.identity+"/"+h.credential, "/") }

func names(es []effect) string {
	var out []string
	for _, e := range es {
		switch e := e.(type) {
		case start:
			out = append(out, "start "+e.t.holder.String())
		case refuse:
			out = append(out, fmt.Sprintf("refuse %s %s", e.t.holder, e.code))
		case wakeAt:
			out = append(out, "wake +"+e.at.Sub(epoch).String())
		}
	}
	return strings.Join(out, ", ")
}

// order runs a queue with one free slot, and returns the tickets in the order of their start.
func order(q *queue) string {
	var out []string
	for {
		es := q.Step(epoch, signed{took: time.Millisecond})
		if len(es) == 0 {
			return strings.Join(out, " ")
		}
		out = append(out, strings.TrimPrefix(names(es), "start "))
	}
}

// Promise: security-limits.md#certificates
func TestFirstCertificatesBeforeRenewals(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.FirstRuns = 2 })
	q.Step(epoch, arrive{ask("busy", true, time.Minute)})
	for i := range 3 {
		q.Step(epoch, arrive{ask(fmt.Sprint("r", i), false, time.Minute)})
	}
	for i := range 5 {
		q.Step(epoch, arrive{ask(fmt.Sprint("f", i), true, time.Minute)})
	}
	if got, want := order(q), "f0 f1 r0 f2 f3 r1 f4 r2"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// A caller waits for 20 s, where neither it nor the configuration states less (deploy/docs/security-ca.md).
// Promise: security-ca.md#signers-of-kubernetes
func TestCallersWaitTwentySeconds(t *testing.T) {
	for stated, want := range map[time.Duration]time.Duration{0: 20 * time.Second, time.Second: time.Second} {
		l := Limits{MaxWait: stated}
		if err := l.fill(); err != nil || l.MaxWait != want {
			t.Errorf("stated %v: %v, want %v; %v", stated, l.MaxWait, want, err)
		}
	}
}

// Promise: security-ca.md#signers-of-kubernetes, security-limits.md#certificates
func TestIdentitiesTakeTurns(t *testing.T) {
	q := testQueue(t, nil)
	q.Step(epoch, arrive{ask("busy", true, time.Minute)})
	for range 4 {
		q.Step(epoch, arrive{ask("crowd", true, time.Minute)})
	}
	q.Step(epoch, arrive{ask("lone", true, time.Minute)})
	if got, want := order(q), "crowd lone crowd crowd crowd"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// A credential with many requests does not delay the other credentials of its identity: they take turns, each has a
// rate of a quarter of the identity's, and the wait of each is estimated.
// Promise: security-limits.md#certificates
func TestCredentialsTakeTurns(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.Rate, l.Burst = 400, 40 })
	q.service = 10 * time.Millisecond
	q.Step(epoch, arrive{ask("busy", true, time.Minute)})
	for range 10 {
		q.Step(epoch, arrive{ask("web/hog", true, time.Minute)})
	}
	if late := names(q.Step(epoch, arrive{ask("web/hog", true, 50*time.Millisecond)})); late != "refuse web/hog ResourceExhausted" {
		t.Errorf("an eleventh at once: %s", late)
	}
	for _, who := range []string{"web/a", "shop/x", "web/b", "web/a"} {
		if es := q.Step(epoch, arrive{ask(who, true, 150*time.Millisecond)}); len(es) != 0 {
			t.Errorf("%s: %s", who, names(es))
		}
	}
	if got, want := order(q), "web/hog shop/x web/a web/b web/hog web/a"+strings.Repeat(" web/hog", 8); got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// Promise: security-limits.md#certificates
func TestRateOfACredential(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.Rate, l.Burst, l.Signing = 10, 8, 100 })
	for i, want := range []string{"start web/hog", "start web/hog", "wake +400ms", "refuse web/hog ResourceExhausted"} {
		es := q.Step(epoch, arrive{ask("web/hog", true, 500*time.Millisecond)})
		if got := names(es); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
		if i == 3 && !strings.Contains(es[0].(refuse).why, "one Pod or token of web requests more than 2.5 certificates per second: the next certificate is possible in 800ms") {
			t.Errorf("%+v", es)
		}
	}
	for _, who := range []string{"web/a", "web/b", "web/c"} {
		if got := names(q.Step(epoch, arrive{ask(who, true, time.Second)})); got != "start "+who {
			t.Errorf("another credential: %s", got)
		}
	}
}

func TestAHopelessDeadlineIsRefusedAtOnce(t *testing.T) {
	q := testQueue(t, nil)
	q.service = 10 * time.Millisecond
	q.Step(epoch, arrive{ask("busy", true, time.Minute)})
	for range 20 {
		q.Step(epoch, arrive{ask("x", true, time.Minute)})
	}
	es := q.Step(epoch, arrive{ask("x", true, 100*time.Millisecond)})
	if len(es) != 1 || es[0].(refuse).code != codes.ResourceExhausted || !strings.Contains(es[0].(refuse).why, "210ms") {
		t.Errorf("a request that gives up in 100 ms before a queue of 210 ms: %s %v", names(es), es)
	}
	if es := q.Step(epoch, arrive{ask("lone", true, 100*time.Millisecond)}); len(es) != 0 {
		t.Errorf("another identity has its turn within its deadline, yet: %s", names(es))
	}
	if got := names(q.Step(epoch, arrive{ask("late", true, 0)})); got != "refuse late DeadlineExceeded" {
		t.Errorf("a deadline that has passed: %s", got)
	}
	// A renewal waits behind every first certificate.
	if got := names(q.Step(epoch, arrive{ask("r", false, 200*time.Millisecond)})); got != "refuse r ResourceExhausted" {
		t.Errorf("a renewal behind 220 ms of first certificates: %s", got)
	}
}

func TestWhatExpiredInTheQueueIsNotSigned(t *testing.T) {
	q := testQueue(t, nil)
	q.Step(epoch, arrive{ask("busy", true, time.Minute)})
	q.Step(epoch, arrive{ask("a", true, time.Second)})
	q.Step(epoch, arrive{ask("b", true, time.Minute)})
	if got, want := names(q.Step(epoch.Add(2*time.Second), signed{})), "refuse a DeadlineExceeded, start b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Promise: security-limits.md#certificates
func TestRateOfAnIdentityDelaysThenRefuses(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.Rate, l.Burst, l.Signing = 10, 2, 100 })
	got := []string{}
	for range 4 {
		got = append(got, names(q.Step(epoch, arrive{ask("x", true, 150*time.Millisecond)})))
	}
	want := []string{"start x", "start x", "wake +100ms", "refuse x ResourceExhausted"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := names(q.Step(epoch, arrive{ask("y", true, time.Second)})); got != "start y" {
		t.Errorf("another identity: %s", got)
	}
	if got := names(q.Step(epoch.Add(100*time.Millisecond), tick{})); got != "start x" {
		t.Errorf("after the alarm: %s", got)
	}
}

// Promise: security-limits.md#certificates
func TestAFullQueueMakesRoomForFirstCertificates(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.Waiting = 2 })
	for _, r := range []string{"busy", "r1", "r2"} {
		q.Step(epoch, arrive{ask(r, false, time.Minute)})
	}
	if got := names(q.Step(epoch, arrive{ask("r3", false, time.Minute)})); got != "refuse r3 ResourceExhausted" {
		t.Errorf("a renewal to a full queue: %s", got)
	}
	if got := names(q.Step(epoch, arrive{ask("f", true, time.Minute)})); got != "refuse r2 ResourceExhausted" {
		t.Errorf("a first certificate to a full queue: %s", got)
	}
	if got := order(q); got != "f r1" {
		t.Errorf("started %s", got)
	}
}

func TestASlowJournalHoldsSigningBack(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.Signing, l.Journal = 2, 3 })
	started := 0
	count := func(es []effect) {
		for _, e := range es {
			if _, ok := e.(start); ok {
				started++
			}
		}
	}
	for i := range 6 {
		count(q.Step(epoch, arrive{ask(fmt.Sprint(i), true, time.Minute)}))
	}
	for range 3 {
		count(q.Step(epoch, signed{journal: true}))
	}
	if started != 3 {
		t.Fatalf("%d started with the journal stuck, want 3", started)
	}
	count(q.Step(epoch, recorded{}))
	if started != 4 {
		t.Errorf("%d started after one entry settled, want 4", started)
	}
}

// crowd is a queue with random callers.
type crowd struct {
	*testing.T
	*rand.Rand
	seed    uint64
	q       *queue
	now     time.Time
	alarm   time.Time // zero: none
	all     []*ticket
	answers map[*ticket]int
	left    map[*ticket]bool
	writing int
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	r := rand.New(rand.NewPCG(seed, 4))
	q := testQueue(t, func(l *Limits) {
		*l = Limits{Signing: 1 + r.IntN(3), Journal: 1 + r.IntN(8), Waiting: 1 + r.IntN(30), Rate: 20, Burst: 1 + r.IntN(10), FirstRuns: 1 + r.IntN(4), WaitingBytes: 1 + r.IntN(200)}
	})
	return &crowd{T: t, Rand: r, seed: seed, q: q, now: epoch, answers: map[*ticket]int{}, left: map[*ticket]bool{}}
}

// step applies an event, and checks the invariants.
func (c *crowd) step(e event) {
	q := c.q
	for _, e := range q.Step(c.now, e) {
		switch e := e.(type) {
		case start:
			c.answers[e.t]++
		case refuse:
			c.answers[e.t]++
		case wakeAt:
			c.alarm = e.at
		}
	}
	free := q.running < q.limits.Signing && q.running+q.writing < q.limits.Journal
	switch {
	case q.running > q.limits.Signing || q.running+q.writing > max(q.limits.Journal, q.limits.Signing):
		c.Fatalf("seed %d: %d running, %d writing", c.seed, q.running, q.writing)
	case q.memory.used != c.held() || q.memory.used > q.limits.WaitingBytes:
		c.Fatalf("seed %d: %d bytes counted, %d wait, at most %d may", c.seed, q.memory.used, c.held(), q.limits.WaitingBytes)
	case q.waiting() > q.limits.Waiting:
		c.Fatalf("seed %d: %d waiting", c.seed, q.waiting())
	case free && q.first.n+q.renew.n > 0:
		c.Fatalf("seed %d: a free slot while %d wait", c.seed, q.first.n+q.renew.n)
	case len(q.delayed) > 0 && !c.alarm.After(c.now) && q.delayed[0].ready.Before(c.now):
		c.Fatalf("seed %d: delayed past its time", c.seed)
	case len(q.delayed) > 0 && (c.alarm.IsZero() || c.alarm.After(q.delayed[0].ready)):
		c.Fatalf("seed %d: no alarm for the next delayed ticket", c.seed)
	}
}

// held is the bytes of all tickets in the queue.
func (c *crowd) held() (sum int) {
	for _, tk := range c.all {
		if tk.state != outside {
			sum += tk.bytes
		}
	}
	return sum
}

// act makes something happen a little later; with arrivals a caller may arrive or leave.
func (c *crowd) act(arrivals bool) {
	c.now = c.now.Add(time.Duration(c.IntN(20)) * time.Millisecond)
	for !c.alarm.IsZero() && !c.alarm.After(c.now) {
		c.alarm = time.Time{}
		c.step(tick{})
	}
	switch k := c.IntN(10); {
	case k < 5 && arrivals:
		tk := &ticket{holder: holder{fmt.Sprint(c.IntN(6)), strings.Repeat("c", c.IntN(3))}, first: c.IntN(2) == 0, bytes: c.IntN(20), deadline: c.now.Add(time.Duration(c.IntN(900)) * time.Millisecond)}
		c.all = append(c.all, tk)
		c.step(arrive{tk})
	case k == 5 && len(c.all) > 0 && arrivals:
		tk := c.all[len(c.all)-1-c.IntN(min(8, len(c.all)))]
		before := c.answers[tk]
		c.left[tk] = true
		c.step(abandon{tk})
		if tk.state != outside || c.answers[tk] != before {
			c.Fatalf("seed %d: abandoned, and still in the queue or decided", c.seed)
		}
	case k < 8 && c.q.running > 0:
		written := c.IntN(4) > 0
		if written {
			c.writing++
		}
		c.step(signed{time.Duration(c.IntN(30)) * time.Millisecond, written})
	case c.writing > 0:
		c.writing--
		c.step(recorded{})
	}
}

// After every step of random histories: bounds hold, no slot is idle while a ticket waits, no ticket gets two
// decisions, and in the end every ticket that did not leave has one.
func TestQueueRandom(t *testing.T) {
	for seed := range uint64(60) {
		c := newCrowd(t, seed)
		for range 400 {
			c.act(true)
		}
		for range 2000 {
			c.act(false)
		}
		for _, tk := range c.all {
			if n := c.answers[tk]; n > 1 || n == 0 && !c.left[tk] {
				t.Fatalf("seed %d: %d decisions (left: %v)", seed, n, c.left[tk])
			}
		}
		if q := c.q; q.waiting() != 0 || q.first.identities.len()+q.renew.identities.len()+len(q.memory.bytes) != 0 || q.running != 0 {
			t.Fatalf("seed %d: %d waiting, %d running at the end", seed, q.waiting(), q.running)
		}
	}
}

// If the rate holds a request back, the reported reason is the rate, not the queue.
func TestTheReasonIsTheRate(t *testing.T) {
	q := testQueue(t, func(l *Limits) { l.Rate, l.Burst = 1, 1 })
	q.Step(epoch, arrive{ask("x", true, time.Second/2)})
	es := q.Step(epoch, arrive{ask("x", true, time.Second/2)})
	if len(es) != 1 || !strings.Contains(es[0].(refuse).why, "x requests more than 1 certificates per second: the next certificate is possible in 1s") {
		t.Errorf("%+v", es)
	}
}

func TestRatesForgetTheIdle(t *testing.T) {
	r := newRates(1, 1)
	for i := range 5000 {
		r.take(holder{identity: fmt.Sprint(i)}, epoch.Add(time.Duration(i)*time.Second))
	}
	if len(r.full) > 1024 {
		t.Errorf("%d buckets kept", len(r.full))
	}
}
