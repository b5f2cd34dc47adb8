package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/events"
)

// unlisted is an API server whose Events are neither listed nor watched.
type unlisted struct {
	*played[corev1.Event, *corev1.Event]
}

func (u unlisted) Follow(ctx context.Context, s Seen[corev1.Event], failed func(error)) error {
	return (&eventAPI{}).Follow(ctx, s, failed)
}

func warning(name, uid, message string, generation int64) events.Warning {
	w := events.Warning{Namespace: "shop", Reason: events.Refused, Message: message, Since: time.Now(), Object: events.Object{Version: "v1", UID: uid, Generation: generation}}
	w.ID.Group, w.ID.Kind, w.ID.Namespace, w.ID.Name = "networking.istio.io", "VirtualService", w.Namespace, name
	return w
}

// An Event is written once, its count increases as its message or its object's generation changes, and the next leader
// does not write an equal one again. Another object of the same name has its own. Ended warnings leave no state.
func TestEventsAreWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := unlisted{play[corev1.Event]()}
		w, stop := leads(t, server, 1, nil)
		e := &Events{Writer: w}
		one := warning("a", "u1", "one", 1)
		e.Show([]events.Warning{one})
		pass(e.Deadline + 2*time.Second)
		k := nameOf(one)
		got := server.objects[k].Object
		if got == nil || got.Type != "Warning" || got.Reason != "Refused" || got.Message != "one" || got.Count != 1 || got.InvolvedObject.UID != "u1" ||
			got.InvolvedObject.APIVersion != "networking.istio.io/v1" || got.InvolvedObject.Namespace != "shop" || got.Namespace != "shop" {
			t.Fatalf("%+v", got)
		}
		e.Show([]events.Warning{one, warning("b", "u2", "one", 1)})
		pass(time.Minute)
		e.Show([]events.Warning{one, warning("b", "u2", "one", 1)})
		pass(time.Minute)
		if len(server.writes) != 2 {
			t.Errorf("%d writes of two Events", len(server.writes))
		}
		e.Show([]events.Warning{warning("a", "u1", "two", 2)})
		pass(time.Minute)
		if got := server.objects[k].Object; got.Count != 2 || got.Message != "two" || !got.LastTimestamp.After(got.FirstTimestamp.Time) {
			t.Errorf("%+v", got)
		}
		if len(w.queue.there) != 1 {
			t.Errorf("%d Events are remembered of one that is wanted", len(w.queue.there))
		}
		e.Show([]events.Warning{warning("a", "u1", "two", 3)}) // broken again, after it was mended
		pass(time.Minute)
		if got := server.objects[k].Object; got.Count != 3 {
			t.Errorf("%+v", got)
		}
		stop()

		before := server.changes()
		w, stop = leads(t, server, 2, nil)
		e = &Events{Writer: w}
		e.Show([]events.Warning{warning("a", "u1", "two", 3)})
		pass(time.Minute)
		if server.changes() != before {
			t.Error("a new leader writes an Event again that says the same")
		}
		e.Show([]events.Warning{warning("a", "u3", "two", 1)})
		pass(time.Minute)
		if len(server.objects) != 3 {
			t.Errorf("%d Events", len(server.objects))
		}
		stop()
	})
}
