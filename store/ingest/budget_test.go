package ingest

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/object"
)

func budgetDesk(t *testing.T, b Budget) *desk {
	d := newDesk(t)
	d.s = NewState(Options{Budget: b})
	d.lead()
	return d
}

// problems are the problems that contain a word, as "name: message".
func (d *desk) problems(word string) (all []string) {
	for _, p := range d.s.Problems() {
		if text := p.ID.Name + ": " + p.Message; strings.Contains(text, word) {
			all = append(all, text)
		}
	}
	return all
}

func (d *desk) refused(want ...string) {
	d.t.Helper()
	var got []string
	for _, text := range d.problems("refused: with it") {
		name, _, _ := strings.Cut(text, ":")
		got = append(got, name)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Errorf("refused %v, want %v", got, want)
	}
}

func in(namespace, text string) string {
	return strings.Replace(text, "namespace: shop", "namespace: "+namespace, 1)
}

func space(name, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}", name, labels)
}

// A new object at the limit is not applied, and is admitted when another is removed. Objects that belong to no tenant
// do not count.
func TestBudgetOfObjects(t *testing.T) {
	d := budgetDesk(t, Budget{Objects: 3})
	d.want(Objects{put(t, svc), put(t, vs("a", "1s")), put(t, epSlice("s", "10.0.0.1", "p")), put(t, pod("p", "")), put(t, in("istio-system", vs("m", "1s"))), synced},
		"load", "write +Service web +Endpoints s +VirtualService m +VirtualService a")
	d.want(Objects{put(t, vs("b", "1s"))}, "write +VirtualService b")
	if got := d.problems("3 of 3 objects"); len(got) != 1 || !strings.Contains(got[0], `tenant "shop"`) {
		t.Errorf("warned %q", got)
	}
	d.want(Objects{put(t, vs("c", "1s")), put(t, epSlice("s", "10.0.0.2", "p"))}, "write +Endpoints s", "wait")
	d.refused("c")
	d.want(Due{})
	d.want(Objects{put(t, vs("b", "2s"))}, "write +VirtualService b") // an edit is no new object
	d.want(Objects{put(t, in("istio-system", vs("m1", "1s"))), put(t, in("istio-system", vs("m2", "1s"))), put(t, in("istio-system", vs("m3", "1s")))},
		"write +VirtualService m1 +VirtualService m2 +VirtualService m3")
	d.want(Objects{put(t, in("other", vs("x", "1s")))}, "write +VirtualService x")
	d.want(Objects{put(t, policy("{}"))}, "write +AuthorizationPolicy p") // counts, and is never refused
	d.want(Objects{gone(put(t, vs("a", "1s")))}, "write -VirtualService a")
	d.refused("c")
	d.want(Objects{gone(put(t, svc))}, "write +VirtualService c -Service web")
	d.refused()
}

// An edit beyond the limit leaves the applied version in effect; one that shrinks is admitted, and frees room.
func TestBudgetOfBytes(t *testing.T) {
	d := budgetDesk(t, Budget{Bytes: 400})
	wide := func(name string, hosts int) string {
		var all []string
		for i := range hosts {
			all = append(all, fmt.Sprintf("%s%02d.example", name, i))
		}
		return strings.Replace(vs(name, "1s"), "hosts: ["+name+"]", "hosts: ["+strings.Join(all, ", ")+"]", 1)
	}
	d.want(Objects{put(t, wide("a", 10)), put(t, wide("b", 2)), synced}, "load", "write +VirtualService a +VirtualService b")
	d.want(Objects{put(t, wide("b", 20))})
	d.refused("b")
	if got := d.problems("the previous version stays in effect"); len(got) != 1 {
		t.Errorf("told %q", got)
	}
	d.want(Objects{put(t, wide("b", 1))}, "write +VirtualService b") // and the refused edit is forgotten
	d.refused()
	d.want(Objects{put(t, wide("b", 20))})
	d.refused("b")
	d.want(Objects{put(t, wide("a", 1))}, "write +VirtualService a +VirtualService b")
	d.refused()
}

// Namespaces with the same label are one tenant. A changed label frees room, and applied objects are never removed.
func TestBudgetFollowsLabels(t *testing.T) {
	d := budgetDesk(t, Budget{Objects: 2})
	d.want(Objects{put(t, space("shop", "navarch.io/tenant: t")), put(t, space("other", "navarch.io/tenant: t")), put(t, vs("a", "1s")), put(t, vs("b", "1s")),
		put(t, in("other", vs("x", "1s"))), synced}, "load", "write +VirtualService x +VirtualService a")
	d.refused("b") // by namespace, then name
	if got := d.problems(`tenant "navarch.io/tenant=t" would have 3 objects, and 2 are allowed`); len(got) != 1 {
		t.Errorf("told %q", d.s.Problems())
	}
	d.want(Objects{put(t, space("other", ""))}, "write +VirtualService b")
	d.refused()
	d.want(Objects{put(t, space("other", "navarch.io/tenant: t"))}) // three objects are applied
	d.refused()
	d.want(Objects{put(t, vs("c", "1s"))})
	d.refused("c")
	d.want(Objects{gone(put(t, space("other", "")))})
	d.refused("c")
	d.want(Objects{gone(put(t, vs("a", "1s")))}, "write +VirtualService c -VirtualService a")
}

// Refusals do not depend on the leader: the next leader counts stored objects as admitted.
func TestBudgetUnderAnotherLeader(t *testing.T) {
	d := budgetDesk(t, Budget{Objects: 2})
	d.want(Objects{put(t, vs("b", "1s")), put(t, vs("c", "1s")), synced}, "load", "write +VirtualService b +VirtualService c")
	a := put(t, vs("a", "1s"))
	d.want(Objects{a})
	d.refused("a") // though it is the first by name
	again := func(objects ...Objects) {
		d.s = NewState(Options{Budget: Budget{Objects: 2}})
		d.epoch = kv.Epoch{Key: "leader", Revision: d.epoch.Revision + 1}
		for _, o := range objects {
			d.s.Step(o)
		}
	}
	again(Objects{a, put(t, vs("b", "1s")), put(t, vs("c", "1s")), synced})
	d.refused("c") // as far as a follower can know
	d.want(Gained{Epoch: d.epoch}, "load")
	d.refused("a")
	again(Objects{a, put(t, vs("b", "2s")), put(t, vs("c", "1s")), synced}) // an edit while no process led
	d.want(Gained{Epoch: d.epoch}, "load", "write +VirtualService b")
	d.refused("a")
	d.want(Objects{gone(put(t, vs("c", "1s")))}, "write +VirtualService a -VirtualService c")
	d.refused()
}

// A refused edit whose previous version is only in the store: that version stays in effect, counts, and is removed with
// its object.
func TestBudgetAdoptsWhatIsStored(t *testing.T) {
	wide := strings.Replace(vs("a", "1s"), "hosts: [a]", "hosts: ["+strings.Repeat("very-long-name.", 15)+"example]", 1)
	restarted := func() *desk {
		d := budgetDesk(t, Budget{Bytes: 200})
		d.want(Objects{put(t, vs("a", "1s")), put(t, vs("b", "1s")), synced}, "load", "write +VirtualService a +VirtualService b")
		d.want(Objects{put(t, wide)})
		d.refused("a")
		d.s = NewState(Options{Budget: Budget{Bytes: 200}})
		d.s.Step(Objects{put(t, wide), put(t, vs("b", "1s")), synced})
		d.want(Gained{Epoch: kv.Epoch{Key: "leader", Revision: 8}}, "load")
		d.refused("a")
		key := d.s.inventory.objects.Get(put(t, vs("b", "1s")).ID).Entry.records[0].Meta().Key
		if used := d.s.inventory.budgets.ledger.accounts["shop"].used; used[inObjects] != 2 || used[inBytes] != d.bytes[key]*2 {
			t.Errorf("counted %+v of %v", used, d.bytes)
		}
		return d
	}
	d := restarted()
	d.want(Objects{put(t, vs("a", "2s"))}, "write +VirtualService a")
	d.refused()
	d = restarted()
	d.want(Objects{gone(put(t, wide))}, "write -VirtualService a")
	d = restarted()
	d.want(Objects{broken(put(t, wide))}) // neither the refused version nor nothing
	d.want(Objects{put(t, vs("b", "2s"))}, "write +VirtualService b")
}

// A spoiled edit withdraws a refused one, and both leave the applied version in effect.
func TestBudgetAndSpoiledEdits(t *testing.T) {
	d := budgetDesk(t, Budget{Objects: 1})
	d.want(Objects{put(t, vs("a", "1s")), put(t, vs("b", "1s")), synced}, "load", "write +VirtualService a")
	d.refused("b")
	d.want(Objects{put(t, vs("b", "soon"))})
	d.refused()
	d.want(Objects{gone(put(t, vs("a", "1s")))}, "write -VirtualService a")
	d.want(Objects{put(t, vs("b", "1s"))}, "write +VirtualService b")
	d.want(Objects{put(t, vs("c", "1s"))})
	d.refused("c")
	d.want(Objects{broken(put(t, vs("c", "1s")))})
	d.refused()
	d.want(Objects{gone(put(t, vs("b", "1s")))}, "write -VirtualService b")
}

// Objects that belong to no tenant, or must not be refused for their size, are not counted.
func TestCounted(t *testing.T) {
	w := NewState(Options{Budget: Budget{Objects: 1}}).inventory
	for id, want := range map[object.ID]bool{
		named("shop", "a"): true, {Kind: "Service", Namespace: "shop", Name: "a"}: true, named("istio-system", "a"): false, {Kind: "Namespace", Name: "shop"}: false,
		{Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "shop", Name: "a"}: false, {Kind: "Secret", Namespace: "shop", Name: "a"}: true,
	} {
		if w.counted(id) != want {
			t.Errorf("%v: counted %v", id, !want)
		}
	}
}
