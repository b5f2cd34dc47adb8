package plan

import (
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// A set has the number of the plan that last changed its configuration; progressive delivery tells plans apart by this
// number. Changes of endpoints by either path, plans that change nothing of the set, and opened Secrets do not change
// it.
func TestPlansAreNumbered(t *testing.T) {
	const dest = "host: s3.ns0.svc.cluster.local\nsubsets: [{name: "
	p, _, handles := bigPlanner(t, 40, 2)
	h := handles[1]
	edit := func(records ...model.Record) {
		p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, records, nil))
	}
	for _, c := range []struct {
		name  string
		step  func()
		newer bool
	}{
		{"a route", func() { edit(vsOf(t, "ns0/s3", "s3.ns0.svc.cluster.local", "s4.ns0.svc.cluster.local", "")) }, true},
		{"the same again", func() { edit(vsOf(t, "ns0/s3", "s3.ns0.svc.cluster.local", "s4.ns0.svc.cluster.local", "")) }, false},
		{"an endpoint", func() {
			p.PlanEndpoints(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{readyEndpoints(t, "ns0", "s3", 3)}, nil), false)
		}, false},
		{"an endpoint, as configuration", func() { edit(readyEndpoints(t, "ns0", "s3", 2)) }, false},
		{"a rule of another namespace", func() { edit(rec(t, model.KindDestinationRule, "ns0/own", dest+"x}]\nexportTo: ['.']")) }, false},
		{"a cluster, and an endpoint", func() {
			edit(rec(t, model.KindDestinationRule, "ns0/s3", dest+"v9}]"), readyEndpoints(t, "ns0", "s3", 4))
		}, true},
	} {
		before := h.Set().Plan
		if c.step(); (h.Set().Plan > before) != c.newer || h.Set().Plan < before {
			t.Errorf("%s: plan %d, then %d; newer: %v", c.name, before, h.Set().Plan, c.newer)
		}
	}
	late := p.Join(node("ns3", "late"))
	if got := late.Set().Plan; got < h.Set().Plan {
		t.Errorf("who joins has plan %d, another %d", got, h.Set().Plan)
	}
	set := *h.Set()
	set.Types[xds.Secret][manifest.Overlay] = manifest.Of(&xds.Resource{Type: xds.Secret, Name: "s", Version: "1"})
	if !sameButEndpoints(h.Set(), &set) {
		t.Error("a Secret counts")
	}
}

// Records of ServiceAccounts, Namespaces and WorkloadGroups (which only the registrar reads) and of ProxyConfigs (which
// injection reads) cause no planning.
func TestWhatNoPlanReadsIsNotPlanned(t *testing.T) {
	unread := map[model.Kind]string{model.KindProxyConfig: "concurrency: 2", model.KindServiceAccount: "uid: 'YWJj'", model.KindNamespace: "uid: ''", model.KindWorkloadGroup: "template: {serviceAccount: vm}"}
	for _, kind := range model.Kinds() {
		empty := affects[kind] != nil && len(affects[kind]) == 0
		if _, is := unread[kind]; is != empty {
			t.Errorf("%v: its row in the table of effects is empty: %v; this test has a record of it: %v", kind, empty, is)
		}
	}
	for kind, spec := range unread {
		p, _, handles := bigPlanner(t, 40, 2)
		before := handles[1].Set()
		change := p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{rec(t, kind, "ns0/web", spec)}, nil)
		if _, rest := p.PlanEndpoints(change, false); len(rest) > 0 {
			t.Errorf("%v: the configuration path is asked for %v", kind, rest)
		}
		p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{rec(t, kind, "ns0/other", spec)}, nil))
		if handles[1].Set() != before {
			t.Errorf("%v: a set is another one", kind)
		}
	}
}
