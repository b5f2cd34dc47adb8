package quarantine

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// play is a quarantine with the test's clock, and the lines that it logs.
type play struct {
	*Quarantine
	t      *testing.T
	now    time.Time
	log    bytes.Buffer
	shared []Report
	stream uint64
}

var bad = Key{View: "shop", Type: xds.Listener, Name: "bad", Version: "v1"}

// madeOf are the objects from which a refused resource was made.
var madeOf = []model.Place{{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, Field: "spec"}}

func newPlay(t *testing.T) *play {
	p := &play{t: t, now: time.Unix(1_700_000_000, 0)}
	p.Quarantine = New(Config{Settings: Settings{Jitter: func() float64 { return 0 }}, Now: func() time.Time { return p.now },
		Log: slog.New(slog.NewTextHandler(&p.log, nil)), Share: func(r Report) { p.shared = append(p.shared, r) }})
	return p
}

func report(who, envoy string) Report {
	return Report{Key: bad, Reporter: ReporterOf(who, ""), Envoy: envoy, Namespace: "shop", Text: "why " + who, Objects: madeOf}
}

// refuse reports a refusal of each identity, without a retry.
func (p *play) refuse(envoy string, who ...string) {
	for _, w := range who {
		p.Report(0, report(w, envoy))
	}
}

// retry sends the version to a stream of an identity, which answers after a second.
func (p *play) retry(who, envoy string, accepted bool) {
	p.t.Helper()
	stream := p.begin(who, envoy)
	p.pass(time.Second)
	r := report(who, envoy)
	r.Accepted = accepted
	p.Report(stream, r)
}

func (p *play) begin(who, envoy string) uint64 {
	p.t.Helper()
	p.stream++
	if !p.Begin(bad, envoy, ReporterOf(who, ""), p.stream) {
		p.t.Fatalf("after %v a retry by %s with Envoy %q is not due", p.now.Sub(time.Unix(1_700_000_000, 0)), who, envoy)
	}
	return p.stream
}

func (p *play) pass(d time.Duration) { p.now = p.now.Add(d); p.Tick() }

func (p *play) want(withheld bool, envoys ...string) {
	p.t.Helper()
	for _, envoy := range envoys {
		if got := p.Withholds(bad, envoy, 99); got != withheld {
			p.t.Errorf("withheld from Envoy %q: %v", envoy, got)
		}
		if got := slices.Contains(p.WithheldFrom(bad.View, "", envoy, 99), bad); got != withheld {
			p.t.Errorf("listed among what is withheld from Envoy %q: %v", envoy, got)
		}
	}
}

// due checks that a retry becomes due after exactly this duration.
func (p *play) due(after time.Duration) {
	p.t.Helper()
	p.pass(after - time.Millisecond)
	if p.Due(bad, "") {
		p.t.Errorf("a retry is due before %v have passed", after)
	}
	if p.pass(time.Millisecond); !p.Due(bad, "") {
		p.t.Errorf("no retry is due after %v", after)
	}
}

// A quorum of distinct identities withholds one version in one view. The version is listed with the information that an
// operator needs, and is logged once.
// Promise: security-limits.md#refused-resources
func TestQuorum(t *testing.T) {
	p := newPlay(t)
	p.refuse("", "one", "one", "two", "one")
	p.want(false, "")
	p.pass(time.Minute)
	p.refuse("", "three")
	p.want(true, "")
	for _, k := range []Key{{"other", bad.Type, bad.Name, bad.Version, ""}, {bad.View, xds.Route, bad.Name, bad.Version, ""},
		{bad.View, bad.Type, "good", bad.Version, ""}, {bad.View, bad.Type, bad.Name, "v2", ""}, bad.Of("one")} {
		if p.Withholds(k, "", 1) {
			t.Errorf("%+v is withheld", k)
		}
	}
	p.refuse("", "four", "five", "five")
	all := p.Withheld()
	if len(all) != 1 || all[0].Key != bad || all[0].RefusedBy != 5 || all[0].Namespace != "shop" || all[0].Text != "why one" ||
		!slices.Equal(all[0].Objects, madeOf) || all[0].Last.Sub(all[0].First) != time.Minute || all[0].Next.Sub(p.now) != DefaultPause {
		t.Errorf("%+v", all)
	}
	p.pass(DefaultKeep)
	p.want(false, "")
	if p.Withheld() != nil || !p.state.Empty() {
		t.Errorf("not forgotten: %+v", p.Withheld())
	}
	lines := p.log.String()
	for _, word := range []string{"EnvoyFilter shop/f", "name=bad", "view=shop", "identities=3", "why one", "version=v1"} {
		if !strings.Contains(lines, word) {
			t.Errorf("the log does not say %s:\n%s", word, lines)
		}
	}
	if strings.Count(lines, "\n") != 2 || !strings.Contains(lines, "not refused again") {
		t.Errorf("the log should have a line when it is withheld, and one when it is not:\n%s", lines)
	}
}

// A version is withheld until DefaultKeep after the newest refusal; older refusals, and those of a forgotten version,
// do not count.
func TestRefusalsExpire(t *testing.T) {
	p := newPlay(t)
	at := func(who string, ago time.Duration) {
		r := report(who, "")
		r.At = p.now.Add(-ago)
		p.Merge([]Report{r})
	}
	at("old", DefaultKeep)
	at("one", 9*time.Minute)
	at("three", 0)
	p.want(false, "")
	at("late", DefaultKeep+time.Second) // older than all known ones
	p.want(false, "")
	at("two", -time.Hour) // another machine's clock
	p.want(true, "")
	p.pass(DefaultKeep - time.Second)
	p.want(true, "")
	p.pass(time.Second)
	p.want(false, "")
	at("four", 0)
	p.want(false, "")
	at("five", 9*time.Minute)
	p.pass(time.Minute + time.Second)
	at("six", 0)
	p.want(true, "")
}

// A retry goes to one proxy at a time. Each refused retry prolongs the withholding and doubles the pause; repeated
// refusals of one proxy without a retry do neither.
func TestRetriesBackOff(t *testing.T) {
	p := newPlay(t)
	p.refuse("", "one", "two", "three")
	for i, pause := range []time.Duration{1, 2, 4, 8, 8} {
		p.due(pause * time.Minute)
		stream := p.begin(fmt.Sprint("proxy ", i), "")
		if p.Withholds(bad, "", stream) || !p.Withholds(bad, "", stream+1) {
			t.Error("it should go to this one, and no other")
		}
		if p.Due(bad, "") || p.Begin(bad, "", ReporterOf("other", ""), 98) {
			t.Error("two at once")
		}
		p.Report(stream, report(fmt.Sprint("proxy ", i), ""))
		p.want(true, "")
		p.refuse("", "one", "two") // repeated without a retry
	}
	p.refuse("", "one")
	p.due(8 * time.Minute)
	for range 60 { // no other identity is available, and "one" repeats its refusal
		p.refuse("", "one")
		p.pass(3 * time.Second)
	}
	p.want(false, "") // ten minutes and a second after the last retry
}

// A proxy that disconnects without an answer, or never answers, delays the next retry and prolongs nothing.
func TestUnansweredRetries(t *testing.T) {
	p := newPlay(t)
	p.refuse("", "one", "two", "three")
	p.due(time.Minute)
	p.Leave(p.begin("four", ""))
	p.due(2 * time.Minute)
	p.begin("five", "")
	p.pass(2 * time.Minute) // Settings.Wait
	if p.Suits(bad, "", ReporterOf("five", "")) != 1 || p.Suits(bad, "", ReporterOf("six", "")) != Best {
		t.Error("who did not answer should be asked after others")
	}
	p.due(4 * time.Minute)
	p.pass(time.Minute)
	p.want(false, "")
}

// One acknowledgement of an identity that did not refuse the version releases it; the release is logged and shared. If
// a quorum refuses it again, the next release needs a quorum of acknowledgements.
func TestRelease(t *testing.T) {
	p := newPlay(t)
	p.refuse("", "one", "two", "three")
	p.pass(time.Minute)
	p.retry("hostile", "", true)
	p.want(false, "")
	if got := p.Resumed(); !slices.Equal(got, []Key{bad}) {
		t.Errorf("resumed %v", got)
	}
	if last := p.shared[len(p.shared)-1]; !last.Accepted || !last.Retry {
		t.Errorf("shared %+v", last)
	}
	if !strings.Contains(p.log.String(), "because=acknowledged") {
		t.Errorf("the log:\n%s", p.log.String())
	}
	p.Merge(p.shared) // another replica has read our reports, and they come back
	p.want(false, "")
	p.pass(time.Second)
	p.refuse("", "two", "three")
	p.want(false, "")
	p.refuse("", "four")
	p.want(true, "")
	p.pass(time.Minute)
	p.retry("hostile", "", true)
	p.want(true, "")
	if p.Begin(bad, "", ReporterOf("hostile", ""), 98) {
		t.Error("its word is counted, and it is asked again")
	}
	p.retry("five", "", false) // at once, because of the acknowledgement
	p.want(true, "")
	p.pass(2 * time.Minute)
	for i, who := range []string{"hostile", "six", "seven"} {
		p.want(true, "")
		p.retry(who, "", true)
		if i < 2 && !p.Due(bad, "") {
			t.Errorf("after %d acknowledgements the next one is not asked for", i+1)
		}
	}
	p.want(false, "")
}

// An identity that refused a version cannot release it alone.
func TestReleaseByThoseWhoRefused(t *testing.T) {
	p := newPlay(t)
	p.refuse("", "one", "two", "three")
	p.pass(time.Minute)
	for _, who := range []string{"one", "two"} {
		p.retry(who, "", true)
		p.want(true, "")
	}
	p.retry("three", "", true)
	p.want(false, "")
}

// A version that is withheld from one version of Envoy is sent to proxies of another one by one, until one of them
// acknowledges it or a quorum of them refuses it. Refusals by different versions of Envoy are not added.
func TestVersionsOfEnvoy(t *testing.T) {
	p := newPlay(t)
	p.refuse("1.39.0", "one", "two")
	p.refuse("1.40.0", "three", "four")
	p.want(false, "1.39.0", "1.40.0", "1.41.0", "")
	p.refuse("1.39.0", "five")
	p.want(true, "1.39.0", "1.40.0", "1.41.0", "")
	if got := p.Withheld()[0].Envoys; !slices.Equal(got, []string{"1.39.0"}) {
		t.Errorf("withheld from %v", got)
	}
	p.retry("six", "1.41.0", true) // without a pause
	p.want(false, "1.41.0")
	p.want(true, "1.39.0", "1.40.0")
	if p.Due(bad, "1.39.0") {
		t.Error("its own pause is not over")
	}
	p.begin("seven", "")
	p.retry("eight", "1.40.0", false)
	p.want(true, "1.40.0")
	if got := p.Withheld()[0]; !slices.Equal(got.Envoys, []string{"1.39.0", "1.40.0"}) || got.RefusedBy != 6 {
		t.Errorf("withheld from %+v", got)
	}
	p.pass(time.Minute)
	p.retry("six", "1.39.0", true)
	p.want(false, "1.39.0", "1.41.0")
	p.want(true, "1.40.0")
	p.retry("seven", "1.40.0", true)
	p.want(false, "1.39.0", "1.40.0", "1.41.0", "")
	if n := strings.Count(p.log.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, p.log.String())
	}
}

// A version that was released for one version of Envoy stays released while it is withheld from another.
func TestReleasedForOneEnvoy(t *testing.T) {
	p := newPlay(t)
	p.refuse("1.39.0", "one", "two", "three")
	p.retry("four", "1.41.0", true)
	for i, pause := range []time.Duration{1, 2, 4, 8} {
		p.pass(pause * time.Minute)
		p.retry(fmt.Sprint("proxy ", i), "1.39.0", false)
		p.want(true, "1.39.0")
		p.want(false, "1.41.0")
	}
	p.pass(DefaultKeep)
	if !p.state.Empty() {
		t.Error("not forgotten")
	}
}

// Reports that arrive repeatedly, in any order of lists, count once. A release precedes refusals from before it.
func TestReportsAreHeardAgain(t *testing.T) {
	p := newPlay(t)
	at := func(who string, after time.Duration, retry, accepted bool) Report {
		r := report(who, "")
		r.At, r.Retry, r.Accepted = p.now.Add(after), retry, accepted
		return r
	}
	first := []Report{at("three", 2*time.Minute, false, false), at("one", 0, false, false), at("two", time.Minute, false, false)}
	retried := []Report{at("four", 9*time.Minute, true, false), at("four", 9*time.Minute+time.Second, true, false)}
	released := at("five", 14*time.Minute, true, true)
	p.pass(13 * time.Minute)
	p.Merge(first)
	p.want(false, "") // three refusals of 11 minutes ago
	if p.log.Len() > 0 {
		t.Errorf("what was over before it was heard is logged: %s", p.log.String())
	}
	for range 3 {
		p.Merge(slices.Concat(retried, first)) // together they last until now
		p.want(true, "")
	}
	if next := p.Withheld()[0].Next; !next.Equal(retried[0].At.Add(2 * time.Minute)) {
		t.Errorf("the retries of one round count as several: the next is due at %v", next)
	}
	p.pass(time.Minute)
	for range 3 {
		p.Merge([]Report{released})
		p.want(false, "")
		p.Merge(slices.Concat(first, retried))
		p.want(false, "")
	}
	if n := strings.Count(p.log.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, p.log.String())
	}
}
