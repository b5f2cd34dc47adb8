package ingest

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

func TestOneChangeOneBatch(t *testing.T) {
	d := newDesk(t)
	d.lead()
	web := put(t, svc)
	d.want(Objects{web, put(t, vs("a", "1s"))}) // not synced: nothing is complete yet
	d.want(Objects{synced}, "load", "write +Service web +VirtualService a")
	d.want(Objects{web, put(t, vs("a", "1s"))})
	d.want(Objects{put(t, vs("a", "1000ms"))}) // means the same
	d.want(Objects{put(t, vs("a", "2s"))}, "write +VirtualService a")
	var many Objects
	for i := range 50 {
		many = append(many, put(t, vs(fmt.Sprintf("v%02d", i), "1s")))
	}
	if done := d.step(many); len(done) != 1 || strings.Count(done[0], "+VirtualService") != 50 {
		t.Errorf("50 at once: %q", done)
	}
	d.want(Objects{gone(web), put(t, vs("a", "3s"))}, "write +VirtualService a -Service web")
	if s := d.s.Stats(); s.Batches != 4 || s.Deletes != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestFollowersWriteNothing(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), synced})
	d.want(Objects{put(t, vs("a", "1s"))})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +VirtualService a")
	d.want(Lost{})
	d.want(Objects{put(t, vs("a", "2s"))})
	d.want(Gained{Epoch: kv.Epoch{Key: "leader", Revision: 9}}, "load", "write +VirtualService a")
}

func TestDeposedStopsWriting(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web")
	effects := d.s.Step(Objects{put(t, vs("a", "1s"))})
	if len(effects) != 1 {
		t.Fatal(effects)
	}
	d.want(Written{Epoch: d.epoch, Outcome: Deposed})
	d.want(Objects{put(t, vs("a", "2s"))})
	d.want(Written{Epoch: d.epoch})                                  // late
	d.want(Loaded{Epoch: d.epoch, Have: map[model.Key]model.Hash{}}) // late
	next := kv.Epoch{Key: "leader", Revision: 9}
	d.s.Step(Gained{Epoch: next})
	write := d.s.Step(Loaded{Epoch: next, Have: maps.Clone(d.stored), After: 4, Complete: true})
	d.want(Written{Epoch: d.epoch, After: 5}) // of the previous epoch: no statement about this batch
	d.want(Objects{put(t, vs("b", "1s"))})
	d.commit(write[0].(Write).Batch)
	d.want(Written{Epoch: next, After: 5}, "write +VirtualService b")
}

func TestUnknownOutcomeComparesAgain(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web")
	d.s.Step(Objects{put(t, vs("a", "1s"))})
	effects := d.s.Step(Written{Epoch: d.epoch, Outcome: Unknown})
	if len(effects) != 1 || !effects[0].(Load).Again {
		t.Fatalf("effects %v", effects)
	}
	d.want(Objects{put(t, vs("b", "1s"))}) // waits for the comparison
	d.want(Loaded{Epoch: d.epoch, Have: maps.Clone(d.stored), After: 3, Complete: true}, "write +VirtualService a +VirtualService b")
}

// A batch that was left half done is completed even if nothing differs any more.
func TestIncompleteHeadIsCompleted(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web")
	d.s.Step(Gained{Epoch: kv.Epoch{Key: "leader", Revision: 8}})
	effects := d.s.Step(Loaded{Epoch: kv.Epoch{Key: "leader", Revision: 8}, Have: maps.Clone(d.stored), After: 5})
	if b := effects[0].(Write).Batch; len(effects) != 1 || b.Len() != 0 || b.After != 5 {
		t.Fatalf("effects %+v", effects)
	}
}

func TestChangesWhileWritingAreGathered(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{synced})
	d.want(Gained{Epoch: d.epoch}, "load")
	first := d.s.Step(Objects{put(t, vs("a", "1s"))})
	for i := range 5 {
		if effects := d.s.Step(Objects{put(t, vs("a", fmt.Sprintf("%ds", i+2)))}); len(effects) > 0 {
			t.Fatalf("wrote while writing: %v", effects)
		}
	}
	d.commit(first[0].(Write).Batch)
	d.want(Written{Epoch: d.epoch, After: 2}, "write +VirtualService a")
}

func TestEndpointEditsArePaced(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web")
	d.want(Objects{put(t, epSlice("s", "10.0.0.1", "p"))}, "write +Endpoints s", "wait") // the first at once
	d.want(Objects{put(t, epSlice("s", "10.0.0.2", "p"))})
	d.want(Objects{put(t, epSlice("s", "10.0.0.3", "p"))})
	d.want(Due{}, "write +Endpoints s", "wait")
	d.want(Objects{put(t, epSlice("s", "10.0.0.4", "p"))})
	d.want(Objects{put(t, vs("a", "1s"))}, "write +Endpoints s +VirtualService a") // written together with configuration
}

func TestPodTouchesItsSlicesOnly(t *testing.T) {
	d := newDesk(t)
	all := Objects{put(t, svc), put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/region: r}}"), synced}
	for i := range 5 {
		all = append(all, put(t, epSlice(fmt.Sprintf("s%d", i), "10.0.0.1", fmt.Sprintf("p%d", i))), put(t, pod(fmt.Sprintf("p%d", i), "a: b")))
	}
	d.step(all)
	d.step(Gained{Epoch: d.epoch})
	count := func(e object.Event, want uint64, writes ...string) {
		t.Helper()
		before := d.s.Stats().Normalised
		d.step(Due{})
		d.want(Objects{e}, writes...)
		if n := d.s.Stats().Normalised - before; n != want {
			t.Errorf("%v: normalised %d objects, want %d", e.ID, n, want)
		}
	}
	count(put(t, pod("p3", "a: c")), 1, "write +Endpoints s3", "wait")
	count(put(t, pod("p3", "a: c")+"\nstatus: {phase: Running}"), 0)
	count(gone(put(t, pod("p2", ""))), 1, "write +Endpoints s2", "wait")
	count(put(t, pod("p2", "a: b")), 1, "write +Endpoints s2", "wait")
	count(put(t, pod("stranger", "a: b")), 0)
	count(put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/region: q}}"), 5,
		"write +Endpoints s0 +Endpoints s1 +Endpoints s2 +Endpoints s3 +Endpoints s4", "wait")
}

func TestMeshConfiguration(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), put(t, vs("a", "1s")), put(t, epSlice("s", "10.0.0.1", "p")), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +Endpoints s +VirtualService a")
	before := d.s.Stats().Normalised
	mesh := put(t, fmt.Sprintf(meshMap, `defaultServiceExportTo: ["."]`))
	d.want(Objects{mesh}, "write +Mesh mesh +Service web")
	if n := d.s.Stats().Normalised - before; n != 2 {
		t.Errorf("normalised %d objects, want the 2 that depend on the mesh configuration", n)
	}
	before = d.s.Stats().Normalised
	d.want(Objects{put(t, fmt.Sprintf(meshMap, `{defaultServiceExportTo: [.]}`))}) // means the same
	if n := d.s.Stats().Normalised - before; n != 0 {
		t.Errorf("normalised %d objects for nothing", n)
	}
	d.want(Objects{put(t, fmt.Sprintf(meshMap, `a: [`))}) // the last good one stays in effect
	if p := d.s.Problems(); len(p) < 1 || p[0].Field != "data.mesh" {
		t.Errorf("problems %v", p)
	}
	d.want(Objects{gone(mesh)}) // and so it does without one
	d.want(Objects{put(t, fmt.Sprintf(meshMap, `{}`))}, "write +Mesh mesh +Service web")
}

func TestBadEditKeepsTheLastGood(t *testing.T) {
	d := newDesk(t)
	good := put(t, vs("a", "1s"))
	d.want(Objects{put(t, svc), good, synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +VirtualService a")
	d.want(Objects{put(t, vs("a", "soon"))})
	if p := d.s.Problems(); len(p) != 1 || p[0].Field != "spec.http[0].timeout" || p[0].Location != "a.yaml#1" {
		t.Errorf("problems %v", p)
	}
	d.want(Objects{broken(good)})
	d.want(Objects{good})
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
	d.want(Objects{put(t, vs("a", "soon"))})
	d.want(Objects{gone(good)}, "write -VirtualService a") // really deleted
}

// Kinds that others are joined with, and the mesh configuration, report a version that is not supported, and keep their
// last good version.
func TestVersionsThatAreNotRead(t *testing.T) {
	d := newDesk(t)
	node := "apiVersion: %s\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/region: r}}"
	namespace, role := "apiVersion: %s\nkind: Namespace\nmetadata: {name: shop}", "apiVersion: rbac.authorization.k8s.io/%s\nkind: ClusterRole\nmetadata: {name: r}"
	mesh := strings.Replace(fmt.Sprintf(meshMap, `defaultServiceExportTo: ["."]`), "v1", "%s", 1)
	all := func(version string) (events Objects) {
		for _, text := range []string{node, namespace, role, mesh, strings.Replace(pod("p", "a: b"), "v1", "%s", 1)} {
			events = append(events, put(t, fmt.Sprintf(text, version)))
		}
		return events
	}
	d.step(append(all("v1"), put(t, epSlice("s", "10.0.0.1", "p")), synced))
	d.step(Gained{Epoch: d.epoch})
	if p := d.s.Problems(); len(p) != 0 {
		t.Fatal(p)
	}
	d.want(all("v7"))
	if p := d.s.Problems(); len(p) != 5 || p[0].Field != "apiVersion" {
		t.Errorf("problems %v", p)
	}
	d.want(all("v1"))
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("of what is good again: %v", p)
	}
}

// The version that was good before this process began stays in effect too, as long as the object exists.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestBadObjectsAfterRestart(t *testing.T) {
	d := newDesk(t)
	a, b, c := put(t, vs("a", "1s")), put(t, vs("b", "1s")), put(t, vs("c", "1s"))
	p := put(t, policy("{rules: [{}]}"))
	d.want(Objects{put(t, svc), a, b, c, p, synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +VirtualService a +VirtualService b +VirtualService c +AuthorizationPolicy p")
	d.s = NewState(Options{})
	d.lead()
	d.want(Objects{put(t, svc), put(t, vs("a", "soon")), broken(b), put(t, policy("{action: MAYBE}")), synced}, "load", "write -VirtualService c")
	d.want(Objects{put(t, vs("a", "2s"))}, "write +VirtualService a")
	d.want(Objects{gone(b)}, "write -VirtualService b")
	d.want(Objects{put(t, policy("{action: PERHAPS}"))}) // the stored one is known to be good
	d.want(Objects{gone(p)}, "write -AuthorizationPolicy p")
}

// Where not even the name of a document can be read, it may be any of those that seem to be gone.
func TestUnreadableDocumentAfterRestart(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), put(t, vs("a", "1s")), put(t, vs("b", "1s")), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +VirtualService a +VirtualService b")
	d.s = NewState(Options{})
	d.lead()
	unknown := object.Event{Op: object.Broken, Location: "x.yaml#1", Problem: "is no YAML"}
	d.want(Objects{put(t, svc), unknown, synced}, "load")
	d.want(Objects{put(t, vs("a", "1s")), gone(unknown)}, "write -VirtualService b")
}

// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestFirstSeenPolicyFailsClosed(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{synced})
	d.want(Gained{Epoch: d.epoch}, "load")
	p := put(t, policy("{rules: [{}]}"))
	d.want(Objects{put(t, policy("{action: MAYBE}"))}, "write +closed AuthorizationPolicy p")
	d.want(Objects{p}, "write +AuthorizationPolicy p")
	d.want(Objects{put(t, policy("{action: MAYBE}"))}) // now a good one is known
	d.want(Objects{broken(p)})
	d.want(Objects{gone(p)}, "write -AuthorizationPolicy p")
	d.want(Objects{broken(p)}, "write +closed AuthorizationPolicy p")
	if p := d.s.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "closed") {
		t.Errorf("problems %v", p)
	}
	d.want(Objects{gone(p)}, "write -AuthorizationPolicy p")
}

// An empty mesh is not published, and a problem reports it; with the option for it, the mesh is published.
func TestEmptyMesh(t *testing.T) {
	d := newDesk(t)
	d.after = 0
	d.want(Objects{synced})
	d.want(Gained{Epoch: d.epoch}, "load")
	if p := d.s.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "--allow-empty") {
		t.Errorf("problems %v", p)
	}
	d.want(Objects{put(t, svc)}, "write +Service web")
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
	d = newDesk(t)
	d.s, d.after = NewState(Options{AllowEmpty: true}), 0
	d.want(Objects{synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write ")
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("problems of an empty mesh that is meant: %v", p)
	}
}

func TestNewLeaderDoesNotEmptyTheStore(t *testing.T) {
	d := newDesk(t)
	all := Objects{put(t, svc), synced}
	for i := range 6 {
		all = append(all, put(t, vs(fmt.Sprintf("v%d", i), "1s")))
	}
	d.step(all)
	d.step(Gained{Epoch: d.epoch})
	stored := len(d.stored)

	d.s = NewState(Options{})
	d.lead()
	d.want(Objects{synced}, "load") // an empty folder
	if p := d.s.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "navarchctl removals accept ") || len(d.stored) != stored {
		t.Errorf("%d of %d records left, problems %v", len(d.stored), stored, p)
	}
	d.want(Objects{all[0], all[2], all[3], all[4], all[5], all[6], all[7]})
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("everything is back and there are problems: %v", p)
	}
	d.s = NewState(Options{})
	d.lead()
	d.want(Objects{all[0], all[2], put(t, vs("new", "1s")), synced}, "load", "write +VirtualService new") // 5 of 6 gone
	d.s = NewState(Options{AllowEmpty: true})
	d.lead()
	if d.step(Objects{synced}); len(d.stored) != 0 {
		t.Errorf("--allow-empty left %v", d.stored)
	}
}

func TestTooLargeRecordIsAProblem(t *testing.T) {
	d := newDesk(t)
	d.want(Objects{put(t, svc), put(t, vs("a", "1s")), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web +VirtualService a")
	effects := d.s.Step(Objects{put(t, vs("a", "2s"))})
	key := effects[0].(Write).Batch.Puts[0].Meta().Key
	d.want(Written{Epoch: d.epoch, After: 3, Refused: map[model.Key]int{key: 2 << 20}})
	if p := d.s.Problems(); len(p) != 1 || p[0].ID.Name != "a" || !strings.Contains(p[0].Message, "2097152 bytes") {
		t.Errorf("problems %v", p)
	}
	d.want(Objects{put(t, vs("a", "1s"))}) // as it is stored
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
}

// The order in which objects are emitted does not affect the records.
func TestRecordsDoNotDependOnOrder(t *testing.T) {
	events := []object.Event{put(t, svc), put(t, vs("a", "1s")), put(t, epSlice("s", "10.0.0.1", "p")), put(t, pod("p", "a: b")),
		put(t, fmt.Sprintf(meshMap, `defaultServiceExportTo: ["."]`)), put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/region: r}}")}
	first, problems := Records(events, Options{}.Normal)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for range 20 {
		events = append(events[1:], events[0])
		w := newInventory(Options{})
		for _, e := range events { // one by one
			w.applyEvents([]object.Event{e})
		}
		for _, r := range first {
			if got := w.wanted.records[r.Meta().Key]; got == nil || got.Meta().Hash != r.Meta().Hash {
				t.Fatalf("%v differs", r.Meta().Key)
			}
		}
		if len(w.wanted.records) != len(first) {
			t.Fatalf("%d records, want %d", len(w.wanted.records), len(first))
		}
	}
}
