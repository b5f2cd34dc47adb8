//go:build kube

package status

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/events"
)

// With the documented rights only: an API server accepts the Events of an object and of a namespace, and their newer
// messages; kubectl shows them.
func TestKubeEvents(t *testing.T) {
	c := controlplane.Shared(t)
	namespace := c.Namespace(t)
	e, err := NewEvents(rights.Documented(t, c), Config[corev1.Event]{Deadline: time.Second, Log: slog.New(slog.DiscardHandler),
		Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, 7) }()
	defer func() { cancel(); <-ended }()
	shows := func(want string) {
		t.Helper()
		got := ""
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
			got = c.Kubectl(t, "", "-n", namespace, "get", "events", "-o",
				`jsonpath={range .items[*]}{.type} {.reason} {.involvedObject.kind}/{.involvedObject.name} {.count} {.message},{end}`)
			if got == want {
				return
			}
		}
		t.Fatalf("%q, want %q; problems: %v", got, want, e.Problems())
	}
	one := warning("a", "u1", "one", 1)
	one.Namespace, one.ID.Namespace = namespace, namespace
	e.Show([]events.Warning{one})
	shows("Warning Refused VirtualService/a 1 one,")
	one.Message = strings.Repeat("x", events.MaxMessage)
	e.Show([]events.Warning{one})
	shows("Warning Refused VirtualService/a 2 " + one.Message + ",")
	if found, err := e.API.Get(t.Context(), nameOf(one)); err != nil || found.Object == nil || found.Object.Count != 2 { // as after a conflict
		t.Errorf("%+v, %v", found, err)
	}
	of := one
	of.Reason, of.Message, of.Object = events.Held, "held", events.Object{Version: "v1"}
	of.ID.Kind, of.ID.Name, of.ID.Namespace = "Namespace", namespace, namespace
	of.Namespace = namespace
	e.Show([]events.Warning{of})
	shows("Warning Refused VirtualService/a 2 " + one.Message + ",Warning Held Namespace/" + namespace + " 1 held,")
}
