package status

import (
	"strings"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/machines"
)

func wantedMachine(change func(w *machines.Wanted)) machines.Wanted {
	w := machines.Wanted{Machine: &machines.Machine{Namespace: "shop", Name: "vms-10.0.0.1", Account: "vm", Group: "vms", Replica: "a", Checked: true,
		Labels: map[string]string{"app": "web"}, Connected: time.Unix(1_700_000_000, 0), Spec: &networkingv1.WorkloadEntry{Address: "10.0.0.1", ServiceAccount: "vm"}}}
	if change != nil {
		change(&w)
	}
	return w
}

// drawn returns the writes to an entry until nothing differs, each with its request.
func drawn(t *testing.T, w machines.Wanted, there *WorkloadEntry) (requests string, after *WorkloadEntry) {
	t.Helper()
	draw := Machines(map[machines.Name]machines.Wanted{{Namespace: "shop", Name: "vms-10.0.0.1"}: w})[Key{"shop", "vms-10.0.0.1"}].Draw
	for range 5 {
		next := draw(there, 7)
		if next == nil {
			return requests, there
		}
		requests += map[act]string{create: "create ", update: "update ", updateStatus: "status ", remove: "remove "}[next.act]
		if there = next; next.act == remove {
			there = nil
		}
	}
	t.Fatalf("it does not end: %s", requests)
	return "", nil
}

// An entry is made of its machine, follows its connection and its health, and is removed at last; each state is written
// once. Changes of others to the entry, and to its conditions, stay.
func TestMachineEntries(t *testing.T) {
	requests, entry := drawn(t, wantedMachine(nil), nil)
	if a := entry.GetAnnotations(); requests != "create " || a[machines.GroupAnnotation] != "vms" || a[machines.ControllerAnnotation] != "a" ||
		a[machines.ConnectedAtAnnotation] != "2023-11-14T22:13:20Z" || a[machines.HealthCheckAnnotation] != "true" || a[EpochAnnotation] != "7" || entry.GetLabels()["app"] != "web" {
		t.Fatalf("%s: %v", requests, entry)
	}
	if address, _, _ := unstructured.NestedString(entry.Object, "spec", "address"); address != "10.0.0.1" {
		t.Errorf("its address is %q", address)
	}
	_ = unstructured.SetNestedField(entry.Object, int64(5), "spec", "weight")
	_ = unstructured.SetNestedSlice(entry.Object, []any{map[string]any{"type": "Theirs", "status": "True"}}, "status", "conditions")
	down := func(w *machines.Wanted) {
		w.Machine.Health = &machines.Health{Message: "down", At: time.Unix(1_700_000_100, 0)}
	}
	requests, entry = drawn(t, wantedMachine(down), entry)
	conditions, _, _ := unstructured.NestedSlice(entry.Object, "status", "conditions")
	if requests != "status " || len(conditions) != 2 {
		t.Fatalf("%s: %v", requests, conditions)
	}
	if c := conditions[1].(map[string]any); c["type"] != "Healthy" || c["status"] != "False" || c["message"] != "down" || c["lastTransitionTime"] != "2023-11-14T22:15:00Z" {
		t.Errorf("%v", c)
	}
	later := func(w *machines.Wanted) { down(w); w.Machine.Health.At = w.Machine.Health.At.Add(time.Hour) }
	if requests, _ = drawn(t, wantedMachine(later), entry); requests != "" {
		t.Errorf("the same health later: %s", requests)
	}
	requests, entry = drawn(t, wantedMachine(func(w *machines.Wanted) { down(w); w.Machine.Replica = "b" }), entry)
	if weight, _, _ := unstructured.NestedInt64(entry.Object, "spec", "weight"); requests != "update " || entry.GetAnnotations()[machines.ControllerAnnotation] != "b" || weight != 5 {
		t.Errorf("adopted: %s %v", requests, entry)
	}
	gone := func(w *machines.Wanted) { w.Disconnected = time.Unix(1_700_000_200, 0) }
	requests, entry = drawn(t, wantedMachine(gone), entry)
	if a := entry.GetAnnotations(); requests != "update " || a[machines.ConnectedAtAnnotation] != "" || a[machines.DisconnectedAtAnnotation] != "2023-11-14T22:16:40Z" {
		t.Errorf("disconnected: %s %v", requests, a)
	}
	found := func(w *machines.Wanted) { gone(w); w.Machine, w.Disconnected = nil, w.Disconnected.Add(time.Hour) }
	if requests, _ = drawn(t, wantedMachine(found), entry); requests != "" {
		t.Errorf("another leader, which notices later: %s", requests)
	}
	if requests, entry = drawn(t, wantedMachine(func(w *machines.Wanted) { found(w); w.Gone = true }), entry); requests != "remove " || entry != nil {
		t.Errorf("gone: %s", requests)
	}
	if requests, _ = drawn(t, wantedMachine(func(w *machines.Wanted) { found(w); w.Gone = true }), nil); requests != "" {
		t.Errorf("gone, and not there: %s", requests)
	}
}

// An entry that a user wrote under a machine's name stays the user's. If its machine reports health, everything else
// stays; after the machine is gone, it is as before.
func TestEntriesOfOthers(t *testing.T) {
	theirs := func(annotations map[string]string) *WorkloadEntry {
		e := &WorkloadEntry{Unstructured: unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"address": "10.9.9.9", "serviceAccount": "vm"}}}}
		e.SetAnnotations(annotations)
		return e
	}
	for _, change := range []func(*machines.Wanted){nil, func(w *machines.Wanted) { w.Disconnected = time.Unix(1, 0) }, func(w *machines.Wanted) { w.Disconnected, w.Gone = time.Unix(1, 0), true }} {
		if requests, _ := drawn(t, wantedMachine(change), theirs(nil)); requests != "" {
			t.Errorf("an entry by hand: %s", requests)
		}
	}
	healthy := func(w *machines.Wanted) {
		w.Machine.Group, w.Machine.Spec, w.Machine.Health = "", nil, &machines.Health{Healthy: true, At: time.Unix(1, 0)}
	}
	requests, entry := drawn(t, wantedMachine(healthy), theirs(map[string]string{machines.HealthCheckAnnotation: "true", "x": "y"}))
	if conditions, _, _ := unstructured.NestedSlice(entry.Object, "status", "conditions"); requests != "update status " || len(conditions) != 1 {
		t.Errorf("%s %v", requests, conditions)
	}
	requests, entry = drawn(t, wantedMachine(func(w *machines.Wanted) { healthy(w); w.Disconnected, w.Gone = time.Unix(2, 0), true }), entry)
	conditions, _, _ := unstructured.NestedSlice(entry.Object, "status", "conditions")
	if a := entry.GetAnnotations(); len(conditions) != 0 || a["x"] != "y" || a[machines.ControllerAnnotation] != "" || a[machines.HealthCheckAnnotation] != "true" {
		t.Errorf("%s %v %v", requests, conditions, a)
	}
	if requests, entry = drawn(t, wantedMachine(healthy), nil); requests != "" || entry != nil {
		t.Errorf("one that is not there is made: %s", requests)
	}
}

// An entry that a user wrote under a machine's name is a problem while it and the machine exist; then the machine's
// entry is created.
func TestEntryByHandIsAProblem(t *testing.T) {
	q, k, now := newQueue[WorkloadEntry](7), Key{"shop", "vms-10.0.0.1"}, time.Unix(1_700_000_000, 0)
	want := func(change func(*machines.Wanted)) {
		q.wants(Machines(map[machines.Name]machines.Wanted{machines.Name(k): wantedMachine(change)}))
	}
	step := func(what string, creates bool, named string) {
		t.Helper()
		_, object, _ := q.next(now)
		problems := q.problems(now, maxProblems)
		if creates != (object != nil && object.act == create) || (len(problems) > 0) != (named != "") {
			t.Fatalf("%s: written is %v, problems %v", what, object, problems)
		}
		if named != "" && (problems[0].Key != k || !strings.Contains(problems[0].Message, named)) {
			t.Errorf("%s: %v", what, problems)
		}
	}
	want(nil)
	q.replace(map[Key]Found[WorkloadEntry]{k: {Version: 1, Object: &WorkloadEntry{Unstructured: unstructured.Unstructured{Object: map[string]any{}}}}})
	step("by hand", false, "10.0.0.1")
	want(func(w *machines.Wanted) { w.Disconnected = now })
	step("the machine has left", false, "")
	want(nil)
	step("it is back", false, "10.0.0.1")
	q.observe(k, Found[WorkloadEntry]{Version: 2})
	step("the entry is deleted", true, "")
}
