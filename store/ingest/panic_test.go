package ingest

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// An object that makes normalisation panic is reported by name, and no leader ends. Its last good version stays in
// effect, a policy without one closes its namespace, events of the same call are written, and the object is read again
// when it changes.
func TestObjectThatPanics(t *testing.T) {
	for _, skip := range []int{0, 1} { // in applying the event, and in making the records
		d, log := newDesk(t), &bytes.Buffer{}
		d.s = NewState(Options{Crashes: crash.New(slog.New(slog.NewTextHandler(log, nil)))})
		poisonous := func() func(*object.Object) {
			left := map[*object.Object]int{}
			return func(o *object.Object) {
				if left[o]++; left[o] > skip && strings.Contains(string(o.JSON), "poison") {
					panic("this object cannot be read")
				}
			}
		}
		d.s.inventory.guard.fault = poisonous()
		d.want(Objects{put(t, svc), put(t, vs("a", "1s")), synced})
		d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +VirtualService a")
		bad := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: q, namespace: shop}\nspec: {selector: {matchLabels: {app: poison}}}"
		poison := strings.Replace(vs("a", "1s"), "timeout: 1s", "timeout: 1s, name: poison", 1)
		d.want(Objects{put(t, poison), put(t, vs("b", "1s")), put(t, bad)}, "write +VirtualService b +closed AuthorizationPolicy q")
		named := map[object.ID]bool{}
		for _, p := range d.s.Problems() {
			if p.Code == problem.Internal && p.Severity == problem.Error && strings.Contains(p.Message, "this object cannot be read") {
				named[p.ID] = true
			}
		}
		if len(named) != 2 || !named[parse(t, poison).ID] || !named[parse(t, bad).ID] {
			t.Errorf("problems: %v", d.s.Problems())
		}
		if text := log.String(); strings.Count(text, "stack=") != 1 || !strings.Contains(text, `object="VirtualService shop/a"`) {
			t.Errorf("log: %s", text)
		}
		// The next leader finds the record of the last good version, and keeps it.
		next := newDesk(t)
		next.s.inventory.guard.fault, next.stored = poisonous(), d.stored
		next.want(Objects{put(t, svc), put(t, poison), put(t, vs("b", "1s")), put(t, bad), synced})
		next.want(Gained{Epoch: next.epoch}, "load")
		next.want(Objects{put(t, vs("a", "2s"))}, "write +VirtualService a")
		for _, p := range next.s.Problems() {
			if p.ID.Name == "a" {
				t.Errorf("it is read again, and still: %v", p)
			}
		}
	}
}

// Parsed forms that others are joined with (Pods, the mesh configuration) stay in effect after a panic too, and so do
// known problems if the check of all objects panics.
func TestPanicOverWhatIsJoined(t *testing.T) {
	d := newDesk(t)
	armed := ""
	d.s.inventory.guard.fault = func(o *object.Object) {
		if armed != "" && o.ID.Name == armed || armed == "all" && o.ID.Name == "" {
			panic("it cannot be read")
		}
	}
	labelled := strings.Replace(pod("p", "app: one"), "spec: {", "status: {podIP: 10.0.0.7}\nspec: {", 1)
	d.want(Objects{put(t, svc), put(t, labelled), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +Workload p")
	armed = "p"
	d.want(Objects{put(t, strings.Replace(labelled, "app: one", "app: two", 1))})
	armed = "istio"
	d.want(Objects{put(t, strings.Replace(meshMap, "%s", "rootNamespace: other", 1))})
	if got := len(d.s.Problems()); got != 2 || d.s.inventory.objects.Mesh().GetRootNamespace() == "other" {
		t.Errorf("problems: %v", d.s.Problems())
	}
	armed = "all"
	d.s.inventory.crossCheck.check(&d.s.inventory.guard)
	if got := slices.Collect(d.s.inventory.shown.of(ofAnalysis)); len(got) != 1 || got[0].Code != problem.Internal {
		t.Errorf("between objects: %v", got)
	}
	armed = ""
	d.want(Objects{put(t, strings.Replace(labelled, "app: one", "app: three", 1))}, "write +Workload p", "wait")
}
