package api

import (
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/shard/member"
)

func recordedOf(name string, state member.State, n int, at time.Time) member.Record {
	sums := fleetapi.Recorded{At: at, Sums: fleetapi.Sums{Total: fleetapi.Counts{InSync: n}}}
	return member.Record{Name: name, State: state, Sums: sums.Encode()}
}

// A replica whose record vanishes without its leaving is shown as stopped, with the age of its sums, for ten minutes.
func TestStoppedReplicasAreRemembered(t *testing.T) {
	var f Fleet
	now := time.UnixMilli(1_700_000_000_000)
	a, b, c := recordedOf("a", member.Ready, 1, now), recordedOf("b", member.Leaving, 2, now), recordedOf("c", member.Ready, 3, now)
	f.Set([]member.Record{a, b, c, {Name: "old", State: member.Ready}}, now)
	now = now.Add(30 * time.Second)
	f.Set([]member.Record{a}, now)
	want := map[string]string{"a": "ready", "c": fleetapi.Stopped}
	got := f.Recorded(now)
	for _, r := range got {
		if want[r.Replica] != r.State || r.Age != 30 {
			t.Errorf("%+v", r)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
	missing := []fleetapi.Missing{{Replica: "c"}, {Replica: "x"}}
	(&API{Config: Config{Fleet: &f}}).lastOf(missing, now)
	if missing[0].Last == nil || missing[0].Last.Sums.Total.InSync != 3 || missing[1].Last != nil {
		t.Errorf("%+v", missing)
	}
	f.Set([]member.Record{a, c}, now)
	if got := f.Recorded(now); len(got) != 2 || got[1].State != "ready" {
		t.Errorf("it came back: %+v", got)
	}
	f.Set([]member.Record{a}, now)
	if got := f.Recorded(now.Add(rememberFor + time.Second)); len(got) != 1 {
		t.Errorf("long after: %+v", got)
	}
}

// Equal sums are written again after a minute only, so that a fleet at rest writes little.
func TestEqualSumsKeepTheirTime(t *testing.T) {
	var s Sums
	now := time.UnixMilli(1_700_000_000_000)
	age := func() time.Duration {
		r, err := fleetapi.DecodeRecorded(s.Encoded(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return now.Sub(r.At)
	}
	sums := fleetapi.Sums{Total: fleetapi.Counts{InSync: 1}}
	for _, step := range []struct {
		after time.Duration
		n     int
		want  time.Duration
	}{{0, 1, 0}, {countEvery, 1, countEvery}, {countEvery, 2, 0},
		{repeatEvery - time.Second, 2, repeatEvery - time.Second}, {time.Second, 2, 0}} {
		now = now.Add(step.after)
		sums.Total.InSync = step.n
		if s.set(sums, now); age() != step.want {
			t.Errorf("%+v: age %v", step, age())
		}
	}
}
