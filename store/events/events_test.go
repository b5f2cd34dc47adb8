package events

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

func route(namespace, name string) Object {
	return Object{ID: object.ID{Group: "networking.istio.io", Kind: "VirtualService", Namespace: namespace, Name: name}}
}

// shown lists the warnings as "namespace/name reason: message".
func shown(e *Events) map[string]bool {
	all, _ := e.Present()
	out := map[string]bool{}
	for _, w := range all {
		out[fmt.Sprintf("%s/%s %s: %s", w.Namespace, w.ID.Name, w.Reason, w.Message)] = true
	}
	return out
}

// A repeated warning changes nothing; another message replaces it; another reason adds a second warning.
func TestWarningsAreMerged(t *testing.T) {
	e := New("istio-system")
	a := route("shop", "a")
	e.Warn(a, Refused, "one")
	_, version := e.Present()
	e.Warn(a, Refused, "one")
	if _, again := e.Present(); again != version {
		t.Error("a warning that is stated again counts as a change")
	}
	e.Warn(a, Refused, "two")
	e.Warn(a, Held, "held")
	e.Warn(Object{ID: object.ID{Kind: "Node", Name: "n1"}}, Held, "gone")
	if got := shown(e); len(got) != 3 || !got["shop/a Refused: two"] || !got["shop/a Held: held"] || !got["istio-system/n1 Held: gone"] {
		t.Errorf("%v", got)
	}
	e.Over(a.ID, Refused)
	e.Over(a.ID, Refused)
	if got := shown(e); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// Objects of other clusters have no Events; a nil *Events accepts all calls.
func TestWhatHasNoEvent(t *testing.T) {
	e := New("istio-system")
	far := route("shop", "a")
	far.ID.Origin = origin.New("east", origin.Kube)
	e.Warn(far, Refused, "one")
	if got := shown(e); len(got) != 0 {
		t.Errorf("%v", got)
	}
	var none *Events
	none.Warn(far, Refused, "one")
	none.Over(far.ID, Refused)
	none.Reset()
	if all, version := none.Present(); len(all) != 0 || version != 0 {
		t.Errorf("%v, version %d", all, version)
	}
}

// A namespace has a bounded number of Events, new ones at a limited rate, and one that counts omitted warnings. Other
// namespaces have their own bounds.
func TestBoundsOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New("istio-system")
		for i := range 500 {
			e.Warn(route("noisy", fmt.Sprint(i)), Refused, "one")
		}
		e.Warn(route("quiet", "a"), Refused, "one")
		got := shown(e)
		if len(got) != MostOfNamespace+2 || !got["quiet/a Refused: one"] {
			t.Errorf("%d warnings: %v", len(got), got)
		}
		_, version := e.Present()
		for i := range 500 { // the budget is spent
			e.Warn(route("noisy", fmt.Sprint(i)), Refused, "two")
		}
		if _, now := e.Present(); now != version {
			t.Error("messages change at more than the pace")
		}
		time.Sleep(Interval + time.Second)
		e.Warn(route("noisy", "0"), Refused, "two")
		e.Warn(route("noisy", "1"), Refused, "two")
		if got := shown(e); !got["noisy/0 Refused: two"] || !got["noisy/1 Refused: one"] {
			t.Errorf("%v", got)
		}
		time.Sleep(old)
		e.Warn(route("noisy", "new"), Refused, "one") // replaces one whose Event is gone
		if got := shown(e); len(got) != MostOfNamespace+2 || !got["noisy/new Refused: one"] {
			t.Errorf("%d warnings: %v", len(got), got)
		}
	})
}

// Names of namespaces that come and go leave nothing behind, and messages have a bound.
func TestBoundsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New("istio-system")
		for i := range 2 * Most {
			o := route(fmt.Sprint(i), "a")
			e.Warn(o, Refused, strings.Repeat("é", MaxMessage))
			if i%2 == 0 {
				e.Over(o.ID, Refused)
				time.Sleep(Interval)
			}
		}
		all, _ := e.Present()
		if len(all) > 2*Most || len(e.spaces) > 2*Most {
			t.Errorf("%d warnings, %d namespaces", len(all), len(e.spaces))
		}
		for _, w := range all {
			if len(w.Message) > MaxMessage {
				t.Fatalf("a message of %d bytes", len(w.Message))
			}
		}
	})
}

// Namespaces that fill the list keep Events from others for an hour, and no longer: Kubernetes has deleted theirs by
// then.
func TestFullListMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New("istio-system")
		for i := range Most {
			e.Warn(route(fmt.Sprint("big", i/MostOfNamespace), fmt.Sprint(i)), Refused, "one")
		}
		e.Warn(route("shop", "a"), Refused, "one")
		if shown(e)["shop/a Refused: one"] {
			t.Fatal("the list is not full")
		}
		time.Sleep(old + time.Second)
		e.Warn(route("shop", "a"), Refused, "two")
		if all := shown(e); !all["shop/a Refused: two"] || len(all) > Most+1 {
			t.Errorf("%d Events, and not that of another namespace", len(all))
		}
	})
}
