package resolve

import (
	"fmt"
	"maps"
	"testing"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

func endpointsOf(t *testing.T, s *mirror.Snapshot, entry string) []*model.Endpoint {
	t.Helper()
	r, ok := s.Get(EndpointsKey(model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: entry}))
	if !ok {
		t.Fatalf("no endpoints of %s", entry)
	}
	return r.(*model.Endpoints).Spec.Endpoints
}

func keysOf(c mirror.Change) (keys []model.Key) {
	for _, e := range c.Edits {
		keys = append(keys, e.Key())
	}
	return keys
}

// resolutionsMade returns how many records are resolved while f runs.
func resolutionsMade(t *testing.T, f func()) (n int) {
	saved := resolutions
	defer func() { resolutions = saved }()
	for kind, resolve := range saved {
		if resolve != nil {
			resolutions[kind] = func(s *source, r model.Record) *unit { n++; return resolve(s, r) }
		}
	}
	f()
	return n
}

// While no record needs resolving, the changes and snapshots are those of the source: no work and no memory.
func TestNothingResolvedIsTheSource(t *testing.T) {
	r := New(nil)
	service := record(t, model.Key{Kind: model.KindService, Namespace: "a", Name: "s"}, "{hosts: [h], selector: {app: x}}")
	step := func(c mirror.Change) {
		t.Helper()
		if out := r.Step(c); out.Old != c.Old || out.New != c.New || len(out.Edits) != len(c.Edits) || &out.Edits[0] != &c.Edits[0] {
			t.Errorf("the change of %v is another", keysOf(c))
		}
	}
	step(r.source.Apply(1, []model.Record{service, workload(t, "a/pod", "address: 10.1.0.1, labels: {app: x}"), oneEndpoint(t, 0)}, nil))
	step(r.source.Apply(2, []model.Record{oneEndpoint(t, 1)}, nil))
	entry := record(t, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "s"}, "{hosts: [i], selector: {app: x}}")
	if c := r.Step(r.source.Apply(3, []model.Record{entry}, nil)); c.New == r.source || len(c.Edits) != 2 {
		t.Errorf("nothing is resolved: %v", keysOf(c))
	}
	if c := r.Step(r.source.Apply(4, nil, []model.Key{entry.Meta().Key})); c.New != r.source || len(c.Edits) != 2 {
		t.Errorf("nothing is resolved any more, and the snapshot is not the source's: %v", keysOf(c))
	}
	step(r.source.Apply(5, []model.Record{oneEndpoint(t, 2)}, nil))
}

// A change resolves only the records that depend on it: a change of endpoints none, a Pod those that select it, a
// delegate those that delegate to it.
func TestWorkOfAChange(t *testing.T) {
	r := New(nil)
	var records []model.Record
	for i := range 20 {
		name := fmt.Sprint("s", i)
		records = append(records,
			record(t, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: name}, fmt.Sprintf("{hosts: [%s], selector: {app: %s}}", name, name)),
			record(t, model.Key{Kind: model.KindService, Namespace: "a", Name: name}, fmt.Sprintf("{hosts: [%s.k], selector: {app: %s}}", name, name)),
			workload(t, "a/"+name, "address: 10.1.0.1, labels: {tier: x, app: "+name+"}"),
			virtualService(t, "a/"+name, fmt.Sprintf("{hosts: [%s], http: [{delegate: {name: leaf%d}}]}", name, i)),
			virtualService(t, fmt.Sprintf("a/leaf%d", i), "http: [{route: [{destination: {host: d}}]}]"))
	}
	r.Step(r.source.Apply(1, records, nil))
	for name, c := range map[string]struct {
		put             model.Record
		resolved, edits int
	}{
		"an endpoint":           {oneEndpoint(t, 1), 0, 1},
		"a Pod":                 {workload(t, "a/s3", "address: 10.1.0.9, labels: {app: s3}"), 1, 2},
		"a Pod that is moved":   {workload(t, "a/s4", "address: 10.1.0.9, labels: {app: s5}"), 2, 3},
		"a Pod of nobody":       {workload(t, "a/x", "address: 10.1.0.9, labels: {app: x}"), 0, 1},
		"a WorkloadEntry":       {workload(t, "a/workloadentry:x", "address: 10.1.0.8, labels: {app: s6}"), 2, 3},
		"a delegate":            {virtualService(t, "a/leaf7", "http: [{timeout: 1s, route: [{destination: {host: d}}]}]"), 2, 2},
		"a VirtualService":      {virtualService(t, "a/plain", "{hosts: [p], http: [{route: [{destination: {host: d}}]}]}"), 1, 1},
		"a root, the same made": {virtualService(t, "a/s8", "{hosts: [s8], http: [{delegate: {name: leaf8, namespace: a}}]}"), 1, 0},
	} {
		change := r.source.Apply(r.source.Revision()+1, []model.Record{c.put}, nil)
		var out mirror.Change
		if n := resolutionsMade(t, func() { out = r.Step(change) }); n != c.resolved {
			t.Errorf("%s: %d records are resolved, want %d", name, n, c.resolved)
		}
		if len(out.Edits) != c.edits {
			t.Errorf("%s: edits of %v, want %d", name, keysOf(out), c.edits)
		}
	}
}

// The derived records of a tenant have the revisions of the edits that affect them, not those of others in the change.
// An edit of unknown revisions makes those of the records that it affects unknown.
func TestRevisionsOfDerivedRecords(t *testing.T) {
	r := New(nil)
	of := func(namespace string) []model.Record {
		root := record(t, model.Key{Kind: model.KindVirtualService, Namespace: namespace, Name: "root"}, "{hosts: [h], http: [{delegate: {name: leaf}}]}")
		entry := record(t, model.Key{Kind: model.KindServiceEntry, Namespace: namespace, Name: "e"}, "{hosts: [h], selector: {app: x}}")
		return []model.Record{root, entry, virtualService(t, namespace+"/leaf", "http: [{route: [{destination: {host: d}}]}]"),
			workload(t, namespace+"/pod", "address: 10.1.0.1, labels: {app: x}")}
	}
	edit := func(namespace string, revision int64) []model.Record {
		return []model.Record{virtualService(t, namespace+"/leaf", fmt.Sprintf("http: [{timeout: %ds, route: [{destination: {host: d}}]}]", revision)),
			workload(t, namespace+"/pod", fmt.Sprintf("address: 10.1.0.%d, labels: {app: x}", revision))}
	}
	r.Step(r.source.Apply(1, append(of("a"), of("b")...), nil))
	for _, c := range []struct {
		a, b []*model.Span // of the edits of each tenant's leaf and Pod
		want map[string]string
	}{
		{[]*model.Span{{First: 2, Last: 2}, {First: 2, Last: 2}}, []*model.Span{{First: 7, Last: 7}, {First: 9, Last: 9}},
			map[string]string{"a root": "2-2", "a e": "2-2", "b root": "7-7", "b e": "9-9"}},
		{[]*model.Span{{First: 12, Last: 12}, nil}, []*model.Span{{First: 17, Last: 19}, {First: 18, Last: 18}},
			map[string]string{"a root": "12-12", "a e": "unknown", "b root": "17-19", "b e": "18-18"}},
	} {
		at := int64(r.source.Revision()) + 1
		change := r.source.Apply(r.source.Revision()+1, append(edit("a", at), edit("b", at)...), nil)
		for i, e := range change.Edits {
			spans := map[string][]*model.Span{"a": c.a, "b": c.b}[e.Key().Namespace]
			change.Edits[i].In = spans[map[model.Kind]int{model.KindVirtualService: 0, model.KindWorkload: 1}[e.Key().Kind]]
		}
		got := map[string]string{}
		for _, e := range r.Step(change).Edits {
			if name := e.Key().Name; name == "leaf" || name == "pod" {
				continue
			}
			text := "unknown"
			if e.In != nil {
				text = fmt.Sprintf("%d-%d", e.In.First, e.In.Last)
			}
			got[e.Key().Namespace+" "+map[bool]string{true: "root", false: "e"}[e.Key().Kind == model.KindVirtualService]] = text
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
}

// When resolving a record panics, its last result stays, all other records are resolved, and the panic is reported as a
// problem.
func TestPanicLeavesWhatStood(t *testing.T) {
	saved := resolutions
	defer func() { resolutions = saved }()
	r := New(nil)
	bad := model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "bad"}
	r.Step(r.source.Apply(1, []model.Record{record(t, bad, "{hosts: [h], selector: {app: x}}"), workload(t, "a/w", "address: 10.1.0.1, labels: {app: x}")}, nil))
	resolutions[bad.Kind] = func(s *source, of model.Record) *unit {
		if of.Meta().Key == bad {
			panic("deliberate")
		}
		return saved[bad.Kind](s, of)
	}
	good := record(t, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "good"}, "{hosts: [i], selector: {app: x}}")
	c := r.Step(r.source.Apply(2, []model.Record{good, workload(t, "a/w", "address: 10.1.0.2, labels: {app: x}")}, nil))
	if got := endpointsOf(t, c.New, "bad"); got[0].Address != "10.1.0.1" {
		t.Errorf("it became %v", got)
	}
	if got := endpointsOf(t, c.New, "good"); got[0].Address != "10.1.0.2" {
		t.Errorf("the other became %v", got)
	}
	if problems := r.Problems(); len(problems) != 1 || problems[0].Key != bad {
		t.Errorf("problems %v", problems)
	}
	resolutions = saved
	c = r.Step(r.source.Apply(3, []model.Record{workload(t, "a/w", "address: 10.1.0.3, labels: {app: x}")}, nil))
	if got := endpointsOf(t, c.New, "bad"); got[0].Address != "10.1.0.3" || len(r.Problems()) > 0 {
		t.Errorf("afterwards it became %v; problems %v", got, r.Problems())
	}
}

// When finding the affected units of an edit panics, all units are resolved again, so that no change is missed. When a
// set that a unit reads cannot be indexed, the unit's last result stays.
func TestPanicTouchesAll(t *testing.T) {
	saved := resolutions
	defer func() { resolutions = saved }()
	table := dependencies
	r := New(nil)
	r.table = &table
	at := model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "one"}
	r.Step(r.source.Apply(1, []model.Record{record(t, at, "{hosts: [h], selector: {app: x}}"), workload(t, "a/w", "address: 10.1.0.1, labels: {app: x}")}, nil))
	table[model.KindWorkload] = []dependency{{"panics", func(*Resolver, mirror.Edit, map[model.Key]bool) { panic("deliberate") }}}
	c := r.Step(r.source.Apply(2, []model.Record{workload(t, "a/w", "address: 10.1.0.2, labels: {app: x}")}, nil))
	if got := endpointsOf(t, c.New, "one"); got[0].Address != "10.1.0.2" {
		t.Errorf("it became %v", got)
	}
	resolutions[at.Kind] = func(s *source, of model.Record) *unit {
		u := saved[at.Kind](s, of)
		// A set with neither a name nor labels cannot be indexed.
		u.reads = append(u.reads, set{kind: model.KindWorkload, namespace: "a"})
		return u
	}
	c = r.Step(r.source.Apply(3, []model.Record{workload(t, "a/w", "address: 10.1.0.3, labels: {app: x}")}, nil))
	if got := endpointsOf(t, c.New, "one"); got[0].Address != "10.1.0.2" || len(r.Problems()) != 1 || r.Problems()[0].Key != at {
		t.Errorf("it became %v; problems %v", got, r.Problems())
	}
	resolutions, table = saved, dependencies
	c = r.Step(r.source.Apply(4, []model.Record{workload(t, "a/w", "address: 10.1.0.4, labels: {app: x}")}, nil))
	if got := endpointsOf(t, c.New, "one"); got[0].Address != "10.1.0.4" || len(r.Problems()) > 0 {
		t.Errorf("afterwards it became %v; problems %v", got, r.Problems())
	}
}

// oneEndpoint returns an EndpointSlice of service i with a different address in each call.
func oneEndpoint(t testing.TB, i int) model.Record {
	return record(t, model.Key{Kind: model.KindEndpoints, Namespace: "a", Name: "slice"}, fmt.Sprintf("{hosts: [s0.k], endpoints: [{address: 10.2.0.%d}]}", i%250))
}

// BenchmarkOneEndpoint measures a change of endpoints without an overlay, with a small one, and with one as large as a
// mesh in which every VirtualService delegates; for comparison it reports the cost of the source's Apply.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, overlay := range []int{0, 10, 4000} {
		var records []model.Record
		for i := range 4000 {
			name := fmt.Sprint("s", i)
			records = append(records, record(b, model.Key{Kind: model.KindService, Namespace: "a", Name: name}, fmt.Sprintf("{hosts: [%s.k], selector: {app: %s}}", name, name)),
				record(b, model.Key{Kind: model.KindEndpoints, Namespace: "a", Name: name}, fmt.Sprintf("{hosts: [%s.k], endpoints: [{address: 10.3.0.1}]}", name)))
			if i < overlay {
				records = append(records, record(b, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: name}, fmt.Sprintf("{hosts: [%s.e], selector: {app: %s}}", name, name)),
					record(b, model.Key{Kind: model.KindWorkload, Namespace: "a", Name: name}, fmt.Sprintf("{endpoint: {address: 10.1.0.1, labels: {app: %s}}}", name)))
			}
		}
		start := mirror.Empty().Apply(1, records, nil)
		edits := []model.Record{oneEndpoint(b, 1), oneEndpoint(b, 2)}
		b.Run(fmt.Sprintf("overlay=%d", overlay), func(b *testing.B) {
			r := New(nil)
			r.Step(start)
			now := start.New
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				c := now.Apply(now.Revision()+1, edits[now.Revision()%2:][:1], nil)
				b.StartTimer()
				r.Step(c)
				now = c.New
			}
		})
		if overlay == 0 {
			b.Run("Apply", func(b *testing.B) {
				now := start.New
				b.ReportAllocs()
				for b.Loop() {
					now = now.Apply(now.Revision()+1, edits[now.Revision()%2:][:1], nil).New
				}
			})
		}
	}
}

// BenchmarkPod measures a change of one Pod that a ServiceEntry selects together with many others.
func BenchmarkPod(b *testing.B) {
	for _, workloads := range []int{10, 1000} {
		b.Run(fmt.Sprintf("workloads=%d", workloads), func(b *testing.B) {
			records := []model.Record{record(b, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "s"}, "{hosts: [h], selector: {app: x}, ports: [{name: http, number: 80}]}")}
			for i := range workloads {
				records = append(records, workload(b, fmt.Sprintf("a/w%d", i), fmt.Sprintf("address: 10.1.%d.%d, labels: {app: x}", i/250, i%250)))
			}
			start := mirror.Empty().Apply(1, records, nil)
			pods := []model.Record{workload(b, "a/w0", "address: 10.1.0.0, labels: {app: x}"), workload(b, "a/w0", "address: 10.1.0.0, labels: {app: x, v: w}")}
			r := New(nil)
			r.Step(start)
			now := start.New
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				c := now.Apply(now.Revision()+1, pods[now.Revision()%2:][:1], nil)
				b.StartTimer()
				r.Step(c)
				now = c.New
			}
		})
	}
}
