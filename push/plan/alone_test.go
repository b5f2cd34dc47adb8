package plan

import (
	"testing"
	"time"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// An edit stands alone if it leads no host to a destination that it did not lead to before.
func TestStandsAlone(t *testing.T) {
	vs := func(name, host, weight, subset string) model.Record {
		return rec(t, model.KindVirtualService, "a/"+name, "{hosts: ['"+host+"'], gateways: [edge/front], http: [{route: [{destination: {host: s.a, subset: v1}, weight: "+
			weight+"}, {destination: {host: s.a, subset: "+subset+"}, weight: 10}]}]}")
	}
	old := vs("old", "old.test", "90", "v2")
	s := snapshot(old, vs("wild", "*.wild.test", "90", "v2"), svc(t, "a/s", "10.96.0.1", "http:80:HTTP"))
	for name, c := range map[string]struct {
		was, now model.Record
		want     bool
	}{
		"other weights":                    {old, vs("old", "old.test", "50", "v2"), true},
		"a destination less":               {old, vs("old", "old.test", "50", "v1"), true},
		"another subset":                   {old, vs("old", "old.test", "90", "v3"), false},
		"another host":                     {old, vs("old", "new.test", "90", "v2"), false},
		"a new host":                       {nil, vs("new", "new.test", "90", "v9"), true},
		"a host of another VirtualService": {nil, vs("new", "old.test", "90", "v2"), false},
		"a host below its wildcard":        {nil, vs("new", "x.wild.test", "90", "v2"), false},
		"a host of a service":              {nil, vs("new", "s.a.svc.cluster.local", "90", "v2"), false},
		"it is deleted":                    {old, nil, false},
		"a DestinationRule":                {nil, rec(t, model.KindDestinationRule, "a/r", "host: s.a"), false},
	} {
		after := s
		if c.now != nil {
			after = s.Apply(s.Revision()+1, []model.Record{c.now}, nil).New
		}
		if got := standsAlone([]mirror.Edit{{Old: c.was, New: c.now}}, after); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A lone edit that stands alone is due at once. It waits like others after another edit and soon after a plan.
func TestDueAtOnce(t *testing.T) {
	now := time.Unix(0, 0)
	due := func(d *debounce) time.Duration { in, _ := d.due(now); return in }
	d := debounce{after: 100 * time.Millisecond, most: 10 * time.Second}
	if d.note(now, 1, true); due(&d) != 0 {
		t.Errorf("it is due in %v, want at once", due(&d))
	}
	if d.note(now, 2, true); due(&d) != 25*time.Millisecond {
		t.Errorf("the second is due in %v, want 25ms", due(&d))
	}
	d.started(now)
	if d.note(now, 1, true); due(&d) != 100*time.Millisecond {
		t.Errorf("soon after a plan it is due in %v, want 100ms", due(&d))
	}
}
