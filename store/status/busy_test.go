package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Another writer changes an object each time between our read and write: after the first conflict the write is retried
// at once, then after pauses as after any other failure. Meanwhile a problem reports it and another object is written.
// When the other writer stops, this object is written too.
// Promise: security-tenants.md#statuses-of-objects
func TestConflictsAreNotRaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		k := Key{"shop", RootCertName}
		tries := 0
		c.play(func() {
			c.before = func(of Key) {
				if of == k {
					tries++
					c.put(k, "kubectl", &corev1.ConfigMap{Data: map[string]string{"more": strings.Repeat("x", tries)}})
				}
			}
		})
		w, stop := leads(t, c.api(), 1, nil)
		defer stop()
		w.Want(RootCerts([]string{"shop"}, "ours"))
		pass(w.Deadline + 30*time.Second)
		if tries < 5 || tries > 7 { // at once, twice; then 1, 2, 4, 8 and 16 s later
			t.Errorf("%d tries in half a minute", tries)
		}
		if p := w.Problems(); len(p) != 1 || p[0].Key != k || !strings.Contains(p[0].Message, ErrConflict.Error()) {
			t.Errorf("problems %v", p)
		}
		w.Want(RootCerts([]string{"backend", "shop"}, "ours"))
		if pass(time.Second); c.root("backend") != "ours" {
			t.Errorf("another namespace has %q", c.root("backend"))
		}
		c.play(func() { c.before = nil })
		if pass(65 * time.Second); c.root("shop") != "ours" || len(w.Problems()) > 0 {
			t.Errorf("they have stopped: shop has %q, problems %v", c.root("shop"), w.Problems())
		}
	})
}

// A waiting object, which may have a megabyte, is not compared again each time that another one changes. One that
// changes itself is compared, and if it has the target state by then, its problem ends.
// Promise: security-tenants.md#statuses-of-objects
func TestWaitingObjectsAreNotDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.play(func() { c.refuse = errors.New("request is too large") })
		w, stop := leads(t, c.api(), 1, nil)
		defer stop()
		drawn := 0
		wanted := RootCerts([]string{"shop"}, "ours")
		k := Key{"shop", RootCertName}
		desired := wanted[k]
		draw := desired.Draw
		desired.Draw = func(there *corev1.ConfigMap, epoch int64) *corev1.ConfigMap {
			drawn++
			return draw(there, epoch)
		}
		wanted[k] = desired
		w.Want(wanted)
		pass(w.Deadline + 20*time.Second) // the next try is at 31 s
		before := drawn
		for range 100 {
			c.put(Key{"other", RootCertName}, "kubectl", &corev1.ConfigMap{})
			pass(time.Millisecond)
		}
		if drawn != before {
			t.Errorf("drawn %d times while others changed", drawn-before)
		}
		if p := w.Problems(); len(p) != 1 {
			t.Errorf("problems %v", p)
		}
		c.put(k, "kubectl", draw(nil, 1))
		pass(time.Millisecond)
		if p := w.Problems(); len(p) != 0 || drawn == before {
			t.Errorf("it is right by now: problems %v, drawn %d times", p, drawn-before)
		}
	})
}

// A namespace has thousands of objects to write: the object of another namespace is the second to be written, not the
// last.
// Promise: security-tenants.md#statuses-of-objects
func TestNamespacesTakeTurns(t *testing.T) {
	q := newQueue[unstructured.Unstructured](1)
	there, want := map[Key]Found[unstructured.Unstructured]{}, map[Key]Desired[unstructured.Unstructured]{}
	add := func(k Key) {
		there[k], want[k] = Found[unstructured.Unstructured]{Object: route(t, "")}, report("True").Desired(k.Namespace)
	}
	for i := range 3000 {
		add(Key{"busy", fmt.Sprint(i)})
	}
	add(cart)
	q.replace(there)
	q.wants(want)
	for range 2 {
		if k, _ := q.take(begin); k == cart {
			return
		}
	}
	t.Error("neither the first nor the second object that is written is the other namespace's")
}
