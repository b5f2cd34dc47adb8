package ingest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// Objects that are normalised on all cores get the same records and problems as one after the other, also if they
// look up each other.
func TestAllCoresNormaliseAsOne(t *testing.T) {
	pool := append(isolatedMesh(), vs("a", "1s"), vs("b", "x"), svc)
	const slice = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s%d, namespace: back, " +
		"labels: {kubernetes.io/service-name: reviews}}, addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [%s]%s}]}"
	for i, address := range []string{"10.96.0.1", "10.96.0.2", "192.0.2.9"} {
		pool = append(pool, fmt.Sprintf(slice, i, address, ""), fmt.Sprintf(slice, i, address, ", targetRef: {kind: Pod, name: p}"))
	}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		options := normal.Options{Isolation: normal.Isolation{On: seed%3 > 0, Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/30")}}}
		var events []object.Event
		for range 5 + rnd.IntN(40) {
			events = append(events, put(t, pool[rnd.IntN(len(pool))]))
		}
		one, all := converted(0, events, options), converted(1, events, options)
		if one != all {
			t.Fatalf("seed %d: on all cores\n%s\nwant\n%s", seed, all, one)
		}
	}
}

// converted returns the records and problems of objects as text.
func converted(parallel int, events []object.Event, options normal.Options) string {
	w, records := convertOn(parallel, events, options)
	var out strings.Builder
	for _, r := range records {
		fmt.Fprintln(&out, r.Meta().Key, r.Meta().Hash)
	}
	for _, p := range w.everyProblem() {
		fmt.Fprintln(&out, p)
	}
	return out.String()
}

// An object whose normalisation panics is reported, also if that happens on another core.
func TestPanicOnAnotherCore(t *testing.T) {
	w := newInventory(Options{})
	w.parallel = 1
	n := w.objects.Put(put(t, svc).Object)
	w.normal = nil // each normalisation panics
	if r := w.resultAhead(n, true); r != nil {
		t.Errorf("the result is %v", r)
	}
}

// RecordsFirst returns what Records returns.
func TestRecordsFirst(t *testing.T) {
	events := []object.Event{put(t, svc), put(t, vs("a", "1s")), put(t, vs("b", "x"))}
	records, problems := Records(events, normal.Options{})
	first, later := RecordsFirst(events, normal.Options{})
	if len(records) != len(first) || len(problems) == 0 || !slices.Equal(problems, later()) || !slices.Equal(problems, later()) {
		t.Errorf("%v, %v; want %v, %v", first, later(), records, problems)
	}
}
