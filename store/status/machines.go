package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/machines"
)

// Machines returns the target states of the WorkloadEntries of machines, which are VMs whose agents register or report
// health. The entry of a machine with a WorkloadGroup is created, and deleted once machines.Wanted.Gone is true. If
// another writer changes the entry's spec, the change stays. If a user's entry already has the name of such an entry,
// the user's entry stays unchanged. In this case Desired.Left reports the conflict while the machine is connected.
//
// In an existing entry, only connection annotations, EpochAnnotation and the condition Healthy are written. The
// condition is written only if the entry has the annotation machines.HealthCheckAnnotation. A machine without a
// WorkloadGroup uses an entry that a user has written. Once Gone is true, these annotations and the condition are
// removed from the user's entry. The machines in the given map must not be changed afterwards.
func Machines(all map[machines.Name]machines.Wanted) map[Key]Desired[WorkloadEntry] {
	out := make(map[Key]Desired[WorkloadEntry], len(all))
	for name, wanted := range all {
		w := wanted
		out[Key(name)] = Desired[WorkloadEntry]{Version: versionOfWanted(w), Turn: turnOf(name, w),
			Draw: func(there *WorkloadEntry, epoch int64) *WorkloadEntry {
				return drawEntry(Key(name), w, there, epoch)
			}, Left: func(there *WorkloadEntry) string { return left(w, there) }}
	}
	return out
}

// turnOf returns the owner of an entry for fair queueing, which is the service account of the machine. Therefore
// machines of one account that come and go quickly do not delay machines of another account. If the machine is not
// known, the namespace is the owner.
func turnOf(name machines.Name, w machines.Wanted) string {
	if w.Machine == nil {
		return name.Namespace
	}
	return name.Namespace + "/" + w.Machine.Account
}

// versionOfWanted returns equal texts for equal states.
func versionOfWanted(w machines.Wanted) string {
	raw, err := json.Marshal(w)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// drawEntry returns the next write for an entry, or nil if nothing has to be written.
func drawEntry(k Key, w machines.Wanted, there *WorkloadEntry, epoch int64) *WorkloadEntry {
	switch {
	case there == nil && (w.Gone || w.Machine == nil || w.Machine.Group == ""):
		return nil
	case there == nil:
		return newEntry(k, w, epoch)
	case byHand(w, there):
		return nil
	case there.GetDeletionTimestamp() != nil:
		return nil
	case w.Gone && there.GetAnnotations()[machines.GroupAnnotation] != "":
		return &WorkloadEntry{Unstructured: *there.DeepCopy(), act: remove}
	}
	annotations := maps.Clone(there.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	connection(annotations, w)
	if !maps.Equal(annotations, there.GetAnnotations()) {
		next := &WorkloadEntry{Unstructured: *there.DeepCopy(), act: update}
		if !w.Gone {
			annotations[EpochAnnotation] = strconv.FormatInt(epoch, 10)
		}
		next.SetAnnotations(annotations)
		return next
	}
	if conditions, differ := conditionsOf(w, there); differ {
		next := &WorkloadEntry{Unstructured: *there.DeepCopy(), act: updateStatus}
		if err := unstructured.SetNestedSlice(next.Object, conditions, "status", "conditions"); err == nil {
			return next
		}
	}
	return nil
}

// byHand reports whether a user created an entry under the name of a machine's entry. Such an entry belongs to the
// user.
func byHand(w machines.Wanted, there *WorkloadEntry) bool {
	return there != nil && w.Machine != nil && w.Machine.Group != "" && there.GetAnnotations()[machines.GroupAnnotation] == ""
}

// left returns the reason for which the entry of a connected machine is not created. The result is empty if nothing
// prevents the creation.
func left(w machines.Wanted, there *WorkloadEntry) string {
	if !byHand(w, there) || !w.Disconnected.IsZero() {
		return ""
	}
	return fmt.Sprintf("has no annotation %s, so another writer made it, and it is left unchanged: the machine of service account %q with "+
		"address %s, which registers under this name, is therefore not an endpoint",
		machines.GroupAnnotation, w.Machine.Account, w.Machine.Spec.GetAddress())
}

func newEntry(k Key, w machines.Wanted, epoch int64) *WorkloadEntry {
	raw, err := json.Marshal(w.Machine.Spec)
	spec := map[string]any{}
	if err != nil || json.Unmarshal(raw, &spec) != nil {
		return nil // unreachable: the spec was parsed from JSON
	}
	e := &WorkloadEntry{Unstructured: unstructured.Unstructured{Object: map[string]any{"spec": spec}}, act: create}
	e.SetKind("WorkloadEntry")
	e.SetNamespace(k.Namespace)
	e.SetName(k.Name)
	e.SetLabels(w.Machine.Labels)
	annotations := w.Machine.EntryAnnotations()
	connection(annotations, w)
	annotations[EpochAnnotation] = strconv.FormatInt(epoch, 10)
	e.SetAnnotations(annotations)
	return e
}

// connection sets the annotations with the replica to which a machine is connected, and the time of the connection or
// its end. It removes them for a machine that is gone.
func connection(annotations map[string]string, w machines.Wanted) {
	switch {
	case w.Gone:
		for _, a := range []string{machines.ControllerAnnotation, machines.ConnectedAtAnnotation, machines.DisconnectedAtAnnotation,
			EpochAnnotation} {
			delete(annotations, a)
		}
	case w.Disconnected.IsZero():
		annotations[machines.ControllerAnnotation] = w.Machine.Replica
		annotations[machines.ConnectedAtAnnotation] = w.Machine.Connected.UTC().Format(time.RFC3339Nano)
		delete(annotations, machines.DisconnectedAtAnnotation)
	case annotations[machines.ConnectedAtAnnotation] != "" || annotations[machines.DisconnectedAtAnnotation] == "":
		delete(annotations, machines.ConnectedAtAnnotation)
		annotations[machines.DisconnectedAtAnnotation] = w.Disconnected.UTC().Format(time.RFC3339Nano)
	}
}

// conditionsOf returns the conditions that an entry should have. If the entry has the annotation
// machines.HealthCheckAnnotation, the condition Healthy states the health that the agent of the connected machine
// reports. If the machine is gone, the condition Healthy is removed. Other conditions stay. The result differ is false
// if nothing changes.
func conditionsOf(w machines.Wanted, there *WorkloadEntry) (list []any, differ bool) {
	list, _, err := unstructured.NestedSlice(there.Object, "status", "conditions")
	if err != nil {
		return nil, false // the field is not a list and belongs to another writer
	}
	at := slices.IndexFunc(list, func(c any) bool {
		one, is := c.(map[string]any)
		return is && one["type"] == machines.Healthy
	})
	_, checked := there.GetAnnotations()[machines.HealthCheckAnnotation]
	switch {
	case w.Gone && at >= 0:
		return slices.Delete(list, at, at+1), true
	case w.Gone || !checked || w.Machine == nil || w.Machine.Health == nil || !w.Disconnected.IsZero():
		return nil, false
	}
	health := w.Machine.Health
	when := health.At.UTC().Format(time.RFC3339)
	condition := map[string]any{"type": machines.Healthy, "status": health.Status(), "lastProbeTime": when, "lastTransitionTime": when}
	if health.Message != "" {
		condition["message"] = health.Message
	}
	if at < 0 {
		return append(list, condition), true
	}
	if was, is := list[at].(map[string]any); is && was["status"] == condition["status"] &&
		orNone(was["message"]) == orNone(condition["message"]) {
		return nil, false
	}
	list[at] = condition
	return list, true
}

func orNone(v any) any {
	if v == nil {
		return ""
	}
	return v
}
