package quarantine

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// One identity cannot use up the remembered versions, nor the versions of Envoy of one of them. An identity at its
// limit takes no place from refusals of others.
// Promise: security-limits.md#refused-resources
func TestBounds(t *testing.T) {
	p := newPlay(t)
	other := func(i int) Key {
		return Key{View: fmt.Sprint("made up ", i), Type: xds.Cluster, Name: "c", Version: "v"}
	}
	refuse := func(who string, k Key, envoy string) {
		p.now = p.now.Add(time.Microsecond)
		p.Report(0, Report{Key: k, Reporter: ReporterOf(who, ""), Envoy: envoy})
	}
	known := func() map[Key]bool {
		all := map[Key]bool{}
		for k := range p.state.entries {
			all[k] = true
		}
		return all
	}
	for i := range 512 {
		refuse("hostile", other(i), "")
	}
	if n := len(p.state.entries); n != 256 {
		t.Errorf("%d versions are remembered of one identity", n)
	}
	for who := range 34 {
		for i := range 256 {
			refuse(fmt.Sprint("hostile ", who), other(who*256+i), "")
		}
	}
	full := known()
	if len(full) != 8192 {
		t.Errorf("%d versions are remembered", len(full))
	}
	if refuse("hostile 33", other(1<<20), ""); !maps.Equal(known(), full) {
		t.Error("who has refused too much takes the place of others")
	}
	for i := range 24 {
		refuse("hostile", bad, fmt.Sprint(i))
	}
	if n := len(p.state.entries[bad].groups); n != 2 {
		t.Errorf("one identity made %d versions of Envoy", n)
	}
	for i := range 24 {
		refuse(fmt.Sprint("liar ", i), bad, fmt.Sprint("made up ", i))
	}
	for _, envoy := range []string{"one", "two"} {
		refuse("twice", bad, envoy)
	}
	before := slices.Clone(p.state.entries[bad].groups)
	if refuse("twice", bad, "three"); !slices.Equal(p.state.entries[bad].groups, before) {
		t.Error("who has refused with too many versions of Envoy takes the place of others")
	}
	for i := range 32 {
		refuse(fmt.Sprint("honest ", i), bad, "1.40.0")
	}
	if n, groups := len(p.state.entries), len(p.state.entries[bad].groups); n != 8192 || groups != 8 {
		t.Errorf("%d versions, %d versions of Envoy", n, groups)
	}
	p.want(true, "1.40.0")
	if by := p.Withheld()[0].RefusedBy; by != 16 {
		t.Errorf("%d reporters are kept", by)
	}
	if q := NewState(Settings{Quorum: 1000}).set.Quorum; q != 16 {
		t.Errorf("a quorum of %d, of 16 that are counted", q)
	}
	p.pass(DefaultKeep)
	if !p.state.Empty() || len(p.state.refused) > 0 || len(p.state.flights) > 0 {
		t.Errorf("%d versions and %d reporters are left", len(p.state.entries), len(p.state.refused))
	}
}

// If the state is full and all but one version are withheld, a new refusal rarely finds a place: 64 versions are
// examined for it, not all 8,192. Withheld versions keep their places.
// Promise: security-limits.md#refused-resources
func TestFewAreLookedAtForRoom(t *testing.T) {
	p := newPlay(t)
	refuse := func(who string, i int) {
		p.Report(0, Report{Key: Key{View: fmt.Sprint(i), Type: xds.Cluster, Name: "c", Version: "v"}, Reporter: ReporterOf(who, "")})
	}
	for i := range 8191 {
		for reporter := range 3 {
			refuse(fmt.Sprint(reporter, " of ", i/256), i)
		}
	}
	refuse("somebody", 8191)
	found := 0
	for i := range 100 {
		if refuse(fmt.Sprint("late ", i), 10_000+i); p.state.Remembers(Key{View: fmt.Sprint(10_000 + i), Type: xds.Cluster, Name: "c", Version: "v"}) {
			found++
		}
	}
	// Fewer than one found place is expected; 39 if fifty times as many versions were examined.
	if n := p.state.Active(); found > 12 || len(p.state.entries) != 8192 || n != 8191 {
		t.Errorf("%d of 100 found a place, %d versions, %d withheld", found, len(p.state.entries), n)
	}
}

// Queries for a resource do not allocate.
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

// One credential of an identity uses at most a quarter of the identity's places, and its places are returned.
// Promise: security-limits.md#refused-resources
func TestOneCredentialLeavesRoom(t *testing.T) {
	p := newPlay(t)
	refuse := func(pod string, view int) {
		p.now = p.now.Add(time.Microsecond)
		p.Report(0, Report{Key: Key{View: fmt.Sprint(view), Type: xds.Cluster, Name: "c", Version: "v"}, Reporter: ReporterOf("web", ""), Credential: CredentialOf("web", pod)})
	}
	for i := range 256 {
		refuse("greedy", i)
	}
	if n := len(p.state.entries); n != 64 {
		t.Errorf("%d versions are remembered of one Pod", n)
	}
	refuse("good", 10_000)
	refuse("good", 0)  // already counted
	refuse("good", 65) // had no place with the other credential
	if n := len(p.state.entries); n != 66 || p.state.shares[CredentialOf("web", "good")] != 2 {
		t.Errorf("%d versions with another Pod's two: %d", n, p.state.shares[CredentialOf("web", "good")])
	}
	for pod := range 100 {
		for i := range 64 {
			refuse(fmt.Sprint(pod), 20_000+pod*1000+i)
		}
	}
	if n := len(p.state.entries); n != 256 {
		t.Errorf("%d versions of one identity", n)
	}
	p.pass(DefaultKeep)
	if len(p.state.refused)+len(p.state.shares) > 0 {
		t.Errorf("%d identities, %d credentials are left", len(p.state.refused), len(p.state.shares))
	}
}

// Few of the identities that were asked to retry a version are remembered, whatever the number of retries, and the
// number of released versions without further queries is limited.
func TestWhatRetriesLeaveIsBounded(t *testing.T) {
	p := newPlay(t)
	p.refuse("", "one", "two", "three")
	for i := range 48 {
		for !p.Due(bad, "") {
			p.pass(time.Minute)
		}
		p.retry(fmt.Sprint("proxy ", i), "", false)
	}
	if n := len(p.state.entries[bad].group("").asked); n != 16 {
		t.Errorf("%d proxies that were asked are remembered", n)
	}
	for i := range 8192 {
		p.state.resume(Key{View: fmt.Sprint(i)})
	}
	if n := len(p.state.Resumed()); n != 4096 {
		t.Errorf("%d releases are kept", n)
	}
}
