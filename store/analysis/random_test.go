package analysis

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// world edits records of all kinds that are read, of few names, so that everything meets.
type world struct {
	t       testing.TB
	r       *rand.Rand
	records map[model.Key]model.Record
}

func (w *world) pick(from ...string) string { return from[w.r.IntN(len(from))] }

// edit makes one record, changes one or deletes one.
func (w *world) edit() Edit {
	kinds := slices.SortedFunc(maps.Keys(bodies), func(a, b model.Kind) int { return int(a) - int(b) })
	kinds = append(kinds, model.KindWorkload, model.KindWorkload, model.KindVirtualService, model.KindDestinationRule, model.KindSidecar)
	kind := kinds[w.r.IntN(len(kinds))]
	r := record(w.t, kind.String()+" "+w.pick("istio-system", "shop", "shop", "other")+"/"+w.pick("a", "b", "c")+" {"+w.body(kind)+"}")
	key := r.Meta().Key
	e := Edit{Old: w.records[key], New: r}
	if w.records[key] = r; e.Old != nil && w.r.IntN(3) == 0 {
		e.New = nil
		delete(w.records, key)
	}
	return e
}

func (w *world) labels() string {
	return w.pick("", "", "app: web", "app: web", "app: db", "version: v1", "app: web, version: v1", "app: web, version: v2")
}

func (w *world) host() string {
	return w.pick("a.shop", "a.shop", "b.shop", "'*.shop'", "'*'", "c.d.shop")
}

func (w *world) body(kind model.Kind) string {
	exportTo := "exportTo: [" + w.pick("'*'", "shop", "other") + "]"
	switch kind {
	case model.KindMesh:
		return "rootNamespace: " + w.pick("istio-system", "other")
	case model.KindService, model.KindServiceEntry:
		return fmt.Sprintf("hosts: [%s], %s, selector: {%s}, resolution: %s, ports: [{number: %s, targetNumber: %s, protocol: %s}]", w.host(), exportTo, w.labels(), w.pick("0", "1"), w.pick("80", "81"), w.pick("0", "80", "82"), w.pick("PROTOCOL_HTTP", "PROTOCOL_TCP"))
	case model.KindEndpoints:
		return fmt.Sprintf("hosts: [%s], ports: [{number: %s}], endpoints: [{address: 10.0.0.1, health: %s, labels: {%s}, ports: {x: %s}}]", w.host(), w.pick("80", "82"), w.pick("0", "0", "1"), w.labels(), w.pick("81", "82"))
	case model.KindWorkload:
		return fmt.Sprintf("endpoint: {labels: {%s}}", w.labels())
	case model.KindVirtualService:
		return fmt.Sprintf("hosts: [%s], %s, gateways: [%s], http: [{route: [{destination: {host: %s, subset: %s, port: {number: 80}}, weight: 1}, {destination: {host: %s}, weight: 1}]}]", w.host(), exportTo,
			w.pick("mesh", "shop/a", "mesh, shop/a"), w.host(), w.pick("''", "v1", "v2"), w.host())
	case model.KindDestinationRule:
		return fmt.Sprintf("host: %s, subsets: [{name: %s, labels: {%s}}]%s", w.host(), w.pick("v1", "v2"), w.labels(), w.pick("", "", ", workloadSelector: {matchLabels: {"+w.labels()+"}}"))
	case model.KindSidecar:
		return fmt.Sprintf("workloadSelector: {labels: {%s}}, ingress: [{port: {number: %s}}]", w.labels(), w.pick("80", "82"))
	case model.KindEnvoyFilter:
		return fmt.Sprintf("workloadSelector: {labels: {%s}}", w.labels())
	case model.KindGateway:
		return fmt.Sprintf("selector: {%s}, servers: [{hosts: ['%s']}]", w.labels(), strings.Trim(w.host(), "'"))
	case model.KindPeerAuthentication:
		return fmt.Sprintf("selector: {%s}, istio: %s", w.labels(), portLevel(w.t, uint32(80+w.r.IntN(3))))
	case model.KindAuthorizationPolicy, model.KindRequestAuthentication:
		return fmt.Sprintf("selector: {%s}, closed: %s", w.labels(), w.pick("false", "false", "true"))
	default:
		return fmt.Sprintf("selector: {matchLabels: {%s}}", w.labels())
	}
}

// After any history the findings equal those of an analysis from scratch; after all records are removed, no state is
// left.
func TestRandomHistories(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(20) {
		w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), records: map[model.Key]model.Record{}}
		a := New(Settings{})
		for step := range 60 {
			before, edits := maps.Clone(w.records), map[model.Key]Edit{}
			for range 1 + w.r.IntN(4) {
				e := w.edit()
				edits[e.key()] = Edit{Old: before[e.key()], New: e.New}
			}
			maps.DeleteFunc(edits, func(_ model.Key, e Edit) bool { return e.Old == nil && e.New == nil })
			a.Step(slices.Collect(maps.Values(edits)))
			got, want := a.Problems(), Of(Settings{}, maps.Values(w.records)).Problems()
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: step by step\n%v\nfrom scratch\n%v", seed, step, got, want)
			}
			if step%20 == 19 {
				appliesTheSame(t, fmt.Sprintf("seed %d, step %d", seed, step), w.records)
			}
			for _, p := range got {
				seen[string(p.Analyzer)+" "+string(p.Code)] = true
			}
		}
		var last []Edit
		for _, r := range w.records {
			last = append(last, Edit{Old: r})
		}
		a.Step(last)
		if n := len(a.Problems()) + len(a.givenBy) + len(a.readers) + len(a.present) + len(a.units) + len(a.watches.all) + len(a.watches.byLabel) + len(a.watches.workloads) + a.watches.total; n > 0 {
			t.Fatalf("seed %d: nothing is there any more, and this is kept: %+v", seed, a)
		}
	}
	for _, want := range []string{"IST0101 NotFound", "IST0101 NoEffect", "IST0109 Duplicate", "IST0110 Duplicate", "IST0111 Duplicate", "IST0127 NoEffect", "IST0132 NotFound",
		"IST0159 Duplicate", "IST0160 Duplicate", "IST0173 NotFound", "IST0174 NotFound", "IST0177 Duplicate", "NAV1001 NotFound", " Duplicate", " NoEffect"} {
		if !seen[want] {
			t.Errorf("no history had %q", want)
		}
	}
}

// After an edit only the records that read its facts are examined again, for any number of records.
func TestWorkOfAnEdit(t *testing.T) {
	var all []model.Record
	add := func(text string, args ...any) model.Record {
		r := record(t, fmt.Sprintf(text, args...))
		all = append(all, r)
		return r
	}
	const many = 500
	for i := range many {
		add("Service shop/s%d {hosts: [s%d.shop], exportTo: ['*'], ports: [{number: 80}]}", i, i)
		add("Endpoints shop/s%d {hosts: [s%d.shop], endpoints: [{address: 10.0.0.1, labels: {app: s%d}}]}", i, i, i)
		add("VirtualService shop/s%d {hosts: [s%d.shop], exportTo: ['*'], gateways: [mesh], http: [{route: [{destination: {host: s%d.shop}}]}]}", i, i, i)
		add("DestinationRule shop/s%d {host: s%d.shop, subsets: [{name: v1, labels: {app: s%d}}]}", i, i, i)
		add("AuthorizationPolicy shop/s%d {selector: {app: s%d}}", i, i)
		add("Workload shop/s%d {endpoint: {labels: {app: s%d}}}", i, i)
	}
	a := Of(Settings{}, slices.Values(all))
	if n := len(a.Problems()); n > 0 {
		t.Fatalf("%d problems: %v", n, a.Problems()[0])
	}
	for _, c := range []struct {
		old, new string
		most     uint64
	}{
		{"Service shop/s7 {hosts: [s7.shop], exportTo: ['*'], ports: [{number: 80}]}", "Service shop/s7 {hosts: [s7.shop], exportTo: ['*'], ports: [{number: 81}]}", 3},
		{"VirtualService shop/s7 {}", "VirtualService shop/s7 {hosts: [s7.shop], gateways: [mesh], http: [{route: [{destination: {host: s8.shop}}]}]}", 1},
		{"Endpoints shop/s7 {hosts: [s7.shop]}", "Endpoints shop/s7 {hosts: [s7.shop], endpoints: [{address: 10.0.0.2, labels: {app: s7}}]}", 1},
		// A further ready endpoint, and one of several that leaves, change nothing for routes; the first and the last one do.
		{"", "Endpoints shop/more7 {hosts: [s7.shop], endpoints: [{address: 10.0.0.3, labels: {app: s7}}]}", 1},
		{"Endpoints shop/s8 {}", "Endpoints shop/s8 {hosts: [s8.shop], endpoints: [{address: 10.0.0.2, labels: {app: s8}}]}", 1},
		{"Endpoints shop/s9 {}", "Endpoints shop/s9 {hosts: [s9.shop], endpoints: [{address: 10.0.0.2, health: HEALTH_NOT_READY, labels: {app: s9}}]}", 2},
		{"", "Workload shop/new {endpoint: {labels: {app: s7}}}", 0},
		{"", "Workload shop/newer {endpoint: {labels: {app: none}}}", 0},
		{"Workload shop/s9 {endpoint: {labels: {app: s9}}}", "Workload shop/s9 {endpoint: {labels: {app: none}}}", 1},
	} {
		e := Edit{New: record(t, c.new)}
		if c.old != "" {
			e.Old = record(t, c.old)
			for _, r := range all { // as it was
				if r.Meta().Key == e.Old.Meta().Key {
					e.Old = r
				}
			}
		}
		before := a.Examined
		a.Step([]Edit{e})
		if n := a.Examined - before; n > c.most {
			t.Errorf("%s: %d records were examined, at most %d are to be", c.new, n, c.most)
		}
	}
	// Of many records for one host only the first are compared: a further one touches no other record.
	for i := range maxCompared + 5 {
		a.Step([]Edit{{New: record(t, fmt.Sprintf("VirtualService shop/z%03d {hosts: [one.shop], exportTo: ['*'], gateways: [mesh]}", i))}})
	}
	before := a.Examined
	a.Step([]Edit{{New: record(t, "VirtualService shop/zz {hosts: [one.shop], exportTo: ['*'], gateways: [mesh]}")}})
	if n := a.Examined - before; n != 1 {
		t.Errorf("one more for a host of many: %d records were examined", n)
	}
}

// The changes after an edit among very many findings are the findings of the edited record, and only if they differ.
func TestChangesAreOfAnEdit(t *testing.T) {
	const many = 500
	vs := func(i int, host string) model.Record {
		return record(t, fmt.Sprintf("VirtualService shop/v%03d {hosts: [v%d.test], gateways: [mesh], http: [{route: [{destination: {host: %s}}]}]}", i, i, host))
	}
	all := []model.Record{record(t, "Service shop/s {hosts: [s.shop], exportTo: ['*'], ports: [{number: 80}]}")}
	for i := range many {
		all = append(all, vs(i, "missing.shop"))
	}
	a := Of(Settings{}, slices.Values(all))
	if gone, come := a.Changes(); len(gone) != 0 || len(come) != many {
		t.Errorf("%d findings began and %d ended", len(come), len(gone))
	}
	a.Step([]Edit{{Old: all[8], New: vs(7, "s.shop")}, {Old: all[9], New: all[9]}})
	if gone, come := a.Changes(); len(gone) != 1 || gone[0].ID.Name != "v007" || len(come) != 0 || len(a.Problems()) != many-1 {
		t.Errorf("after the edit of one: %v ended, %v began", gone, come)
	}
}
