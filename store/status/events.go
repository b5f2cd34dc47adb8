package status

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navarch.io/navarch/store/events"
)

// GenerationAnnotation is an annotation of Events. Its value is the generation of the object that the message is about,
// in decimal.
const GenerationAnnotation = "navarch.io/generation"

// reporter is the name of the reporting component in Events.
const reporter = "navarchd"

// Events writes Kubernetes Events of type Warning. An Event's name is derived from object and reason, so the next
// leader updates the Events of its predecessor. Events are not listed or watched, because other components write many
// Events in a cluster. The method Run of the embedded Writer writes the Events that Show has set.
type Events struct {
	*Writer[corev1.Event]
	shown map[Key]Desired[corev1.Event]
}

// NewEvents returns a writer of Events. It sends no request. An empty kubeconfig path stands for the service account of
// this process's Pod. NewEvents uses its own API and Kind in place of those in c. An error means that the kubeconfig or
// the service account is missing or unusable. After an error the result must not be used.
func NewEvents(kubeconfig string, c Config[corev1.Event]) (*Events, error) {
	client, err := coreClient(kubeconfig)
	c.API, c.Kind = &eventAPI{coreObjects[corev1.Event, *corev1.Event]{client, "events"}}, "Event"
	return &Events{Writer: New(c)}, err
}

// Show replaces the warnings for which Events should exist. Events of earlier warnings are not updated any more, and
// stay until Kubernetes deletes them. Show does not block. Calls must not overlap.
func (e *Events) Show(all []events.Warning) {
	want := make(map[Key]Desired[corev1.Event], len(all))
	for _, w := range all {
		want[nameOf(w)] = drawnEvent(w)
	}
	e.Want(want)
	for k := range e.shown {
		if _, still := want[k]; !still {
			e.Observe(k, Found[corev1.Event]{Version: math.MaxUint64}) // forget the old Event
		}
	}
	e.shown = want
}

// nameOf returns the key of a warning's Event. The name is the object's name ("navarch" if empty), truncated to 200
// bytes, and a digest of object and reason. The object's name is for people who list Events.
func nameOf(w events.Warning) Key {
	parts, _ := json.Marshal([]string{w.ID.Group, w.ID.Kind, w.ID.Namespace, w.ID.Name, w.UID, string(w.Reason)}) // encoding strings cannot fail
	sum := sha256.Sum256(parts)
	const most = 200 // Kubernetes permits 253 bytes
	name := cmp.Or(w.ID.Name, "navarch")
	return Key{w.Namespace, name[:min(len(name), most)] + "." + hex.EncodeToString(sum[:8])}
}

// drawnEvent returns the target state of a warning's Event. An Event with the same message and generation stays
// unchanged.
func drawnEvent(w events.Warning) Desired[corev1.Event] {
	generation := strconv.FormatInt(w.Generation, 10)
	return Desired[corev1.Event]{Version: generation + " " + w.Message, Turn: w.Namespace,
		Draw: func(there *corev1.Event, _ int64) *corev1.Event {
			if there != nil && there.Message == w.Message && there.Annotations[GenerationAnnotation] == generation {
				return nil
			}
			key, at := nameOf(w), metav1.NewTime(w.Since.Truncate(time.Second))
			next := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, FirstTimestamp: at, Count: 1}
			if there != nil {
				next.ResourceVersion, next.FirstTimestamp, next.Count = there.ResourceVersion, there.FirstTimestamp, there.Count+1
			}
			next.Annotations = map[string]string{GenerationAnnotation: generation}
			next.InvolvedObject = corev1.ObjectReference{Kind: w.ID.Kind, APIVersion: apiVersion(w), Namespace: w.Namespace, Name: w.ID.Name,
				UID: types.UID(w.UID)}
			next.Type, next.Reason, next.Message, next.LastTimestamp = corev1.EventTypeWarning, string(w.Reason), w.Message, at
			next.Source, next.ReportingController = corev1.EventSource{Component: reporter}, reporter
			return next
		}}
}

func apiVersion(w events.Warning) string {
	switch {
	case w.Version == "":
		return ""
	case w.ID.Group == "":
		return w.Version
	}
	return w.ID.Group + "/" + w.Version
}

// eventAPI reads and writes single Events.
type eventAPI struct {
	coreObjects[corev1.Event, *corev1.Event]
}

var _ API[corev1.Event] = (*eventAPI)(nil)

// Follow implements API. It reports an empty list once, waits until ctx ends, and returns the context's error. The
// first write of an existing Event therefore fails with ErrConflict, and the Writer reads the Event.
func (a *eventAPI) Follow(ctx context.Context, s Seen[corev1.Event], failed func(error)) error {
	failed(nil)
	s.Replace(map[Key]Found[corev1.Event]{})
	<-ctx.Done()
	return ctx.Err()
}
