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

// GenerationAnnotation says of an Event for which generation of its object the message was stated.
const GenerationAnnotation = "navarch.io/generation"

// reporter is the component that Events name.
const reporter = "navarchd"

// Events keeps Events of type Warning. Their names follow from object and reason, so a new leader finds those of the leader before; they are neither listed
// nor watched, because a cluster has many of others.
type Events struct {
	*Writer[corev1.Event]
	shown map[Key]Desired[corev1.Event]
}

// NewEvents reads a kubeconfig; of an empty path the service account of the Pod that this process is in. The API and Kind of the configuration are set here.
// Nothing is asked. An error: the kubeconfig cannot be read.
func NewEvents(kubeconfig string, c Config[corev1.Event]) (*Events, error) {
	client, err := coreClient(kubeconfig)
	c.API, c.Kind = &eventAPI{coreObjects[corev1.Event, *corev1.Event]{client, "events"}}, "Event"
	return &Events{Writer: New(c)}, err
}

// Show states the warnings that are to be there from now on. Events of others stay until Kubernetes deletes them.
func (e *Events) Show(all []events.Warning) {
	want := make(map[Key]Desired[corev1.Event], len(all))
	for _, w := range all {
		want[nameOf(w)] = drawnEvent(w)
	}
	e.Want(want)
	for k := range e.shown {
		if _, still := want[k]; !still {
			e.Observe(k, Found[corev1.Event]{Version: math.MaxUint64}) // nothing is remembered of it
		}
	}
	e.shown = want
}

// nameOf names the Event: by its object's name, for those who list Events, and a digest of all that makes it another one.
func nameOf(w events.Warning) Key {
	parts, _ := json.Marshal([]string{w.ID.Group, w.ID.Kind, w.ID.Namespace, w.ID.Name, w.UID, string(w.Reason)}) // texts alone
	sum := sha256.Sum256(parts)
	const most = 200 // of 253
	name := cmp.Or(w.ID.Name, "navarch")
	return Key{w.Namespace, name[:min(len(name), most)] + "." + hex.EncodeToString(sum[:8])}
}

// drawnEvent is a warning as an Event. One that is there with this message, for this generation, stays as it is.
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

// eventAPI reads and writes Events one by one.
type eventAPI struct {
	coreObjects[corev1.Event, *corev1.Event]
}

var _ API[corev1.Event] = (*eventAPI)(nil)

// Follow implements API: it states once that nothing is there. What is there all the same shows in a conflict.
func (a *eventAPI) Follow(ctx context.Context, s Seen[corev1.Event], failed func(error)) error {
	failed(nil)
	s.Replace(map[Key]Found[corev1.Event]{})
	<-ctx.Done()
	return ctx.Err()
}
