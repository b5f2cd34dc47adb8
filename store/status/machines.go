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

// Machines is what the WorkloadEntries of machines should be: those of groups are made, and deleted when they are Gone; what others wrote into
// their spec stays. Of an entry that somebody else made the annotations and the condition Healthy are kept, and taken away when it is Gone.
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

// turnOf has service accounts take turns: machines of one that come and go as often as they may do not delay those of another.
func turnOf(name machines.Name, w machines.Wanted) string {
	if w.Machine == nil {
		return name.Namespace
	}
	return name.Namespace + "/" + w.Machine.Account
}

// versionOfWanted is the same where the same is wanted.
func versionOfWanted(w machines.Wanted) string {
	raw, err := json.Marshal(w)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// drawEntry is the next thing to write, nil: none.
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

// byHand says whether somebody wrote an entry under the name of a machine's: it is theirs.
func byHand(w machines.Wanted, there *WorkloadEntry) bool {
	return there != nil && w.Machine != nil && w.Machine.Group != "" && there.GetAnnotations()[machines.GroupAnnotation] == ""
}

// left says why the entry of a connected machine is not made.
func left(w machines.Wanted, there *WorkloadEntry) string {
	if !byHand(w, there) || !w.Disconnected.IsZero() {
		return ""
	}
	return fmt.Sprintf("has no annotation %s, so somebody else wrote it, and it is left as it is: the machine of service account %q with "+
		"address %s, which registers itself under this name, is no endpoint because of that",
		machines.GroupAnnotation, w.Machine.Account, w.Machine.Spec.GetAddress())
}

func newEntry(k Key, w machines.Wanted, epoch int64) *WorkloadEntry {
	raw, err := json.Marshal(w.Machine.Spec)
	spec := map[string]any{}
	if err != nil || json.Unmarshal(raw, &spec) != nil {
		return nil // it was read from JSON
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

// connection sets the annotations that say which replica a machine is connected to.
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

// conditionsOf is the list of conditions with Healthy as the machine's agent reports it, where the entry wants that. Others' stay as they are.
func conditionsOf(w machines.Wanted, there *WorkloadEntry) (list []any, differ bool) {
	list, _, err := unstructured.NestedSlice(there.Object, "status", "conditions")
	if err != nil {
		return nil, false // what is there is no list: it is nobody's that we know
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
