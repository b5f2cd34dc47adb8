package fleetapi

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Encoded sums are decoded; sums of any size fit, with the values that are worst listed, and lose no proxy.
func TestRecorded(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	few := Recorded{At: at}
	few.Sums.Add(&Proxy{State: InSync, Version: "1.29.0", Zone: "eu/a", Namespace: "shop", Replica: "r"})
	few.Sums.Add(&Proxy{State: Behind, Version: "1.28.0", Zone: "eu/a", Namespace: "pay", Replica: "r"})
	if got, err := DecodeRecorded(few.Encode(), "r"); err != nil || !reflect.DeepEqual(got, few) {
		t.Errorf("%+v, %v; want %+v", got, err, few)
	}
	many := Recorded{At: at}
	for i := range 5000 {
		p := Proxy{State: InSync, Version: fmt.Sprint("v", i), Zone: strings.Repeat("z", i), Namespace: fmt.Sprintf("team-%d-%s", i, strings.Repeat("x", 40))}
		if i == 100 {
			p.State = Refusing
		}
		many.Sums.Add(&p)
	}
	raw := many.Encode()
	got, err := DecodeRecorded(raw, "r")
	if err != nil || len(raw) > MaxRecorded || len(raw) < MaxRecorded/4 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	if got.Sums.Total != many.Sums.Total || got.Sums.Namespaces["team-100-"+strings.Repeat("x", 40)].Refusing != 1 {
		t.Errorf("%+v", got.Sums)
	}
	for name, m := range map[string]map[string]Counts{"versions": got.Sums.Versions, "zones": got.Sums.Zones, "namespaces": got.Sums.Namespaces} {
		sum := Counts{}
		for _, c := range m {
			sum = sum.plus(c)
		}
		if sum != many.Sums.Total {
			t.Errorf("%s: %+v, want %+v", name, sum, many.Sums.Total)
		}
	}
	for _, bad := range []string{"", "x", `{"t":[-1,0,0]}`, `{"t":[1,0,0],"n":{"a":[99999999999,0,0]}}`, strings.Repeat(" ", MaxRecorded+1)} {
		if got, err := DecodeRecorded([]byte(bad), "r"); err == nil {
			t.Errorf("%.40q: %+v", bad, got)
		}
	}
}

// The sums of a stopped replica are shown and not counted.
func TestStoppedReplicasAreNotCounted(t *testing.T) {
	of := func(n int) Last { return Recorded{Sums: Sums{Total: Counts{InSync: n}}}.Since(time.Now()) }
	a := MergeRecorded([]RecordedSums{{"b", "ready", of(2)}, {"a", Stopped, of(7)}, {"c", "leaving", of(3)}})
	if a.Sums.Total.InSync != 5 || len(a.Items) != 3 || a.Items[0].Replica != "a" {
		t.Errorf("%+v", a)
	}
}
