package quarantine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// One identity fills nothing: neither the versions that are remembered, nor the versions of Envoy of one of them.
func TestBounds(t *testing.T) {
	p := newPlay(t)
	other := func(i int) Key {
		return Key{View: fmt.Sprint("made up ", i), Type: xds.Cluster, Name: "c", Version: "v"}
	}
	refuse := func(who string, k Key, envoy string) {
		p.now = p.now.Add(time.Microsecond)
		p.Report(0, Report{Key: k, Reporter: ReporterOf(who, ""), Envoy: envoy})
	}
	for i := range 2 * maxOfReporter {
		refuse("hostile", other(i), "")
	}
	if n := len(p.state.entries); n != maxOfReporter {
		t.Errorf("%d versions are remembered of one identity", n)
	}
	for who := range maxVersions/maxOfReporter + 2 {
		for i := range maxOfReporter {
			refuse(fmt.Sprint("hostile ", who), other(who*maxOfReporter+i), "")
		}
	}
	refuse(fmt.Sprint("hostile ", maxVersions/maxOfReporter+1), other(1<<20), "")
	if n := len(p.state.entries); n != maxVersions {
		t.Errorf("%d versions: who has refused too much takes the place of others", n)
	}
	for i := range 3 * maxEnvoys {
		refuse("hostile ", bad, fmt.Sprint(i))
	}
	if n := len(p.state.entries[bad].groups); n != maxOfEnvoys {
		t.Errorf("one identity made %d versions of Envoy", n)
	}
	for i := range 3 * maxEnvoys {
		refuse(fmt.Sprint("liar ", i), bad, fmt.Sprint("made up ", i))
	}
	for _, envoy := range []string{"one", "two"} {
		refuse("twice", bad, envoy)
	}
	before := slices.Clone(p.state.entries[bad].groups)
	if refuse("twice", bad, "three"); !slices.Equal(p.state.entries[bad].groups, before) {
		t.Error("who has refused with too many versions of Envoy takes the place of others")
	}
	for i := range 2 * maxReporters {
		refuse(fmt.Sprint("honest ", i), bad, "1.40.0")
	}
	if n, groups := len(p.state.entries), len(p.state.entries[bad].groups); n != maxVersions || groups > maxEnvoys {
		t.Errorf("%d versions, %d versions of Envoy", n, groups)
	}
	p.want(true, "1.40.0")
	if by := p.Withheld()[0].RefusedBy; by != maxReporters {
		t.Errorf("%d reporters are kept", by)
	}
	p.pass(DefaultKeep)
	if !p.state.Empty() || len(p.state.refused) > 0 || len(p.state.flights) > 0 {
		t.Errorf("%d versions and %d reporters are left", len(p.state.entries), len(p.state.refused))
	}
}

// What is asked for every resource costs nothing that is kept.
func TestAskingDoesNotAllocate(t *testing.T) {
	p := newPlay(t)
	ask := func() { p.Withholds(bad, "1.40.0", 7) }
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("%v allocations where nothing is withheld", n)
	}
	p.refuse("1.39.0", "one", "two", "three")
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("%v allocations where something is withheld", n)
	}
}

// One credential of an identity takes a quarter of the identity's room, and what it has taken comes back.
func TestOneCredentialLeavesRoom(t *testing.T) {
	p := newPlay(t)
	refuse := func(pod string, view int) {
		p.now = p.now.Add(time.Microsecond)
		p.Report(0, Report{Key: Key{View: fmt.Sprint(view), Type: xds.Cluster, Name: "c", Version: "v"}, Reporter: ReporterOf("web", ""), Credential: CredentialOf("web", pod)})
	}
	for i := range maxOfReporter {
		refuse("greedy", i)
	}
	if n := len(p.state.entries); n != maxOfShare {
		t.Errorf("%d versions are remembered of one Pod", n)
	}
	refuse("good", 10_000)
	refuse("good", 0)            // it is counted already
	refuse("good", maxOfShare+1) // what the other found no room for
	if n := len(p.state.entries); n != maxOfShare+2 || p.state.shares[CredentialOf("web", "good")] != 2 {
		t.Errorf("%d versions with another Pod's two: %d", n, p.state.shares[CredentialOf("web", "good")])
	}
	for pod := range 100 {
		for i := range maxOfShare {
			refuse(fmt.Sprint(pod), 20_000+pod*1000+i)
		}
	}
	if n := len(p.state.entries); n != maxOfReporter {
		t.Errorf("%d versions of one identity", n)
	}
	p.pass(DefaultKeep)
	if len(p.state.refused)+len(p.state.shares) > 0 {
		t.Errorf("%d identities, %d credentials are left", len(p.state.refused), len(p.state.shares))
	}
}

// However many retries of one version there were, few of those that were asked are remembered, and however much is released that nobody asks about, it is bounded.
func TestWhatRetriesLeaveIsBounded(t *testing.T) {
	p := newPlay(t)
	p.refuse("", "one", "two", "three")
	for i := range 3 * maxAsked {
		for !p.Due(bad, "") {
			p.pass(time.Minute)
		}
		p.retry(fmt.Sprint("proxy ", i), "", false)
	}
	if n := len(p.state.entries[bad].group("").asked); n != maxAsked {
		t.Errorf("%d proxies that were asked are remembered", n)
	}
	for i := range 2 * maxResumed {
		p.state.resume(Key{View: fmt.Sprint(i)})
	}
	if n := len(p.state.Resumed()); n != maxResumed {
		t.Errorf("%d releases are kept", n)
	}
}
