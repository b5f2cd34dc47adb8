package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object is the content of a simulated API server.
type object[O any] interface {
	*O
	metav1.Object
	DeepCopy() *O
}

// played is an API server that a test plays: objects by key, with versions.
type played[O any, P object[O]] struct {
	mu       sync.Mutex
	version  Version
	objects  map[Key]Found[O]
	watchers map[Seen[O]]bool
	writes   []time.Time
	refuse   error              // writes fail
	hang     bool               // writes block until their deadline
	before   func(k Key)        // called when a write arrives, before it is processed
	unseen   bool               // watches do not deliver changes
	after    map[Key]func(o *O) // another writer after each write of ours
}

func play[O any, P object[O]]() *played[O, P] {
	return &played[O, P]{objects: map[Key]Found[O]{}, watchers: map[Seen[O]]bool{}, after: map[Key]func(*O){}}
}

// cluster has ConfigMaps.
type cluster struct {
	*played[corev1.ConfigMap, *corev1.ConfigMap]
}

func newCluster() *cluster { return &cluster{play[corev1.ConfigMap]()} }

func (c *played[O, P]) Follow(ctx context.Context, s Seen[O], failed func(error)) error {
	c.mu.Lock()
	all := maps.Clone(c.objects)
	c.watchers[s] = true
	c.mu.Unlock()
	failed(nil)
	s.Replace(all)
	<-ctx.Done()
	c.mu.Lock()
	delete(c.watchers, s)
	c.mu.Unlock()
	return ctx.Err()
}

func (c *played[O, P]) Get(_ context.Context, k Key) (Found[O], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.objects[k]; f.Object != nil {
		return f, nil
	}
	return Found[O]{}, nil
}

func (c *played[O, P]) Write(ctx context.Context, k Key, o *O) (Found[O], error) {
	c.mu.Lock()
	before, hang, refuse, after := c.before, c.hang, c.refuse, c.after[k]
	c.mu.Unlock()
	if before != nil {
		before(k)
	}
	if hang {
		<-ctx.Done()
		return Found[O]{}, ctx.Err()
	}
	c.mu.Lock()
	c.writes = append(c.writes, time.Now())
	c.mu.Unlock()
	if refuse != nil {
		return Found[O]{}, refuse
	}
	f, err := c.swap(k, "navarchd", o)
	if err != nil {
		return f, err
	}
	if after != nil {
		theirs := P(o).DeepCopy()
		after(theirs)
		c.put(k, "pilot-discovery", theirs)
	}
	return f, nil
}

// play changes how the API server behaves.
func (c *played[O, P]) play(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// changes counts the changes of objects so far.
func (c *played[O, P]) changes() Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// put stores an object (nil: deletes it), and notifies watchers.
func (c *played[O, P]) put(k Key, by string, o *O) Found[O] {
	f, _ := c.store(k, by, o, func(P) bool { return true })
	return f
}

// swap is put, where the object is there as it was read.
func (c *played[O, P]) swap(k Key, by string, o *O) (Found[O], error) {
	return c.store(k, by, o, func(is P) bool {
		return is == nil && P(o).GetResourceVersion() == "" || is != nil && is.GetResourceVersion() == P(o).GetResourceVersion()
	})
}

func (c *played[O, P]) store(k Key, by string, o *O, may func(is P) bool) (Found[O], error) {
	c.mu.Lock()
	if !may(c.objects[k].Object) {
		c.mu.Unlock()
		return Found[O]{}, ErrConflict
	}
	c.version++
	f := Found[O]{Version: c.version, By: by}
	if o != nil {
		f.Object = P(o).DeepCopy()
		P(f.Object).SetResourceVersion(fmt.Sprint(c.version))
	}
	c.objects[k] = f
	watchers := maps.Clone(c.watchers)
	if c.unseen {
		watchers = nil
	}
	c.mu.Unlock()
	for w := range watchers {
		w.Observe(k, f)
	}
	return f, nil
}

func (c *played[O, P]) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.writes)
}

// api is the API server as a Writer has it.
func (c *played[O, P]) api() API[O] { return c }

// root returns the root that agents would read in a namespace; empty if there is no ConfigMap.
func (c *cluster) root(namespace string) string {
	f, _ := c.Get(context.Background(), Key{namespace, RootCertName})
	if f.Object == nil {
		return ""
	}
	return f.Object.Data[rootCertKey]
}

// leads runs a term until the test calls stop.
func leads[O any](t *testing.T, c API[O], epoch int64, tune func(*Config[O])) (w *Writer[O], stop func()) {
	t.Helper()
	config := Config[O]{API: c, Kind: "ConfigMap", Log: slog.New(slog.DiscardHandler),
		Until: func(context.Context) (time.Time, error) { return time.Now().Add(10 * time.Second), nil }}
	if tune != nil {
		tune(&config)
	}
	w = New(config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx, epoch) }()
	synctest.Wait()
	return w, func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	}
}

func pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

// The target state is written within a second, after the leader's first Deadline. It is restored after an edit or
// deletion, and follows a rotation. Objects that have the target state, by any writer, are not written, nor are those
// in namespaces that istiod omits.
func TestRootsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.put(Key{"theirs", RootCertName}, "pilot-discovery", &corev1.ConfigMap{Data: map[string]string{rootCertKey: "one"}})
		c.objects[Key{"theirs", RootCertName}].Object.Labels = map[string]string{configLabel: "true"}
		c.put(Key{"other", RootCertName}, "kubectl", &corev1.ConfigMap{Data: map[string]string{"more": "stays"}, BinaryData: map[string][]byte{rootCertKey: {1}}})
		w, stop := leads(t, c.api(), 7, nil)
		defer stop()
		w.Want(RootCerts([]string{"kube-public", "other", "shop", "theirs"}, "one"))
		pass(w.Deadline - time.Millisecond)
		if n := c.count(); n != 0 {
			t.Fatalf("%d writes before one deadline has passed", n)
		}
		pass(time.Second)
		check := func(what, roots string, writes int) {
			t.Helper()
			for _, namespace := range []string{"other", "shop", "theirs"} {
				if got := c.root(namespace); got != roots {
					t.Errorf("%s: %s has %q, want %q", what, namespace, got, roots)
				}
			}
			if c.count() != writes || c.root("kube-public") != "" {
				t.Errorf("%s: %d writes, want %d; kube-public has %q", what, c.count(), writes, c.root("kube-public"))
			}
		}
		check("at first", "one", 2)
		f, _ := c.Get(t.Context(), Key{"other", RootCertName})
		if m := f.Object; m.Data["more"] != "stays" || len(m.BinaryData) > 0 || m.Labels[configLabel] != "true" || m.Annotations[EpochAnnotation] != "7" {
			t.Errorf("in the way there was one, which is now %v", m)
		}
		c.put(Key{"shop", RootCertName}, "kubectl", &corev1.ConfigMap{Data: map[string]string{rootCertKey: "evil"}})
		pass(time.Second)
		check("edited", "one", 3)
		c.put(Key{"shop", RootCertName}, "kubectl", nil)
		pass(time.Second)
		check("deleted", "one", 4)
		w.Want(RootCerts([]string{"other", "shop", "theirs"}, "one two"))
		pass(time.Second)
		check("rotated", "one two", 7)
		w.Want(RootCerts([]string{"new", "other", "shop", "theirs"}, "one two"))
		pass(time.Second)
		if check("a namespace more", "one two", 8); c.root("new") != "one two" {
			t.Errorf("a new namespace has %q", c.root("new"))
		}
		w.Want(nil)
		c.put(Key{"shop", RootCertName}, "kubectl", nil)
		c.put(Key{"other", RootCertName}, "kubectl", &corev1.ConfigMap{Data: map[string]string{rootCertKey: "evil"}})
		pass(time.Hour)
		if c.count() != 8 || len(w.Problems()) > 0 {
			t.Errorf("nothing is wanted: %d writes, %v", c.count(), w.Problems())
		}
	})
}

// No second has more than Rate writes, however much there is to write.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var names []string
		for i := range 500 {
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		w, stop := leads(t, c.api(), 1, nil)
		defer stop()
		w.Want(RootCerts(names, "one"))
		pass(w.Deadline + 11*time.Second)
		w.Want(RootCerts(names, "two"))
		pass(11 * time.Second)
		if len(c.writes) != 1000 {
			t.Fatalf("%d writes", len(c.writes))
		}
		for i := Rate; i < len(c.writes); i++ {
			if d := c.writes[i].Sub(c.writes[i-Rate]); d < time.Second-time.Millisecond {
				t.Fatalf("%d writes within %v", Rate+1, d)
			}
		}
	})
}

// Another writer changes the root after each of our writes. After a few times we write at growing intervals, a problem
// names the object and the writer, and other objects are written. When the writer stops, the object is restored, and
// the problem ends.
// Promise: security-tenants.md#statuses-of-objects
func TestOthersAreNotFought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		k := Key{"shop", RootCertName}
		c.play(func() { c.after[k] = func(o *corev1.ConfigMap) { o.Data[rootCertKey] = "theirs" } })
		w, stop := leads(t, c.api(), 1, nil)
		defer stop()
		w.Want(RootCerts([]string{"shop"}, "ours"))
		pass(w.Deadline + 50*time.Second)
		if n := c.count(); n != 1+patience+1 {
			t.Errorf("%d writes within a minute", n)
		}
		p := w.Problems()
		if len(p) != 1 || p[0].Key != k || !strings.Contains(p[0].Message, "pilot-discovery") {
			t.Errorf("problems %v", p)
		}
		if time.Sleep(time.Second); !slices.Equal(w.Problems(), p) {
			t.Errorf("one problem is %v, and a second later %v: it would be a new line of the log each second", p, w.Problems())
		}
		w.Want(RootCerts([]string{"backend", "shop"}, "ours"))
		pass(time.Second)
		if got := c.root("backend"); got != "ours" {
			t.Errorf("another namespace has %q", got)
		}
		before := c.count()
		pass(24 * time.Hour)
		if n := c.count() - before; n < 24 || n > 24*5 {
			t.Errorf("%d writes within a day", n)
		}
		c.play(func() { delete(c.after, k) })
		pass(maxPause)
		if c.root("shop") != "ours" {
			t.Errorf("they have stopped, and shop has %q", c.root("shop"))
		}
		pass(2 * maxPause)
		if p := w.Problems(); len(p) != 0 {
			t.Errorf("problems %v", p)
		}
	})
}

// A leader that was stopped, and continues, sends its pending write: it is refused if its successor has written since,
// and reverted if the successor had nothing to write.
func TestSecondLeader(t *testing.T) {
	for _, wants := range []string{"new", "one"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster()
			old, stopOld := leads(t, c.api(), 1, nil)
			defer stopOld()
			old.Want(RootCerts([]string{"shop"}, "one"))
			pass(old.Deadline + time.Second)
			stopped := make(chan struct{})
			c.play(func() { c.before = func(Key) { <-stopped } }) // with a pending write
			old.Want(RootCerts([]string{"shop"}, "old"))
			synctest.Wait()
			c.play(func() { c.before = nil })
			w, stop := leads(t, c.api(), 2, nil)
			defer stop()
			w.Want(RootCerts([]string{"shop"}, wants))
			pass(w.Deadline + time.Second)
			old.Want(nil) // its term is over
			close(stopped)
			pass(time.Second)
			f, _ := c.Get(t.Context(), Key{"shop", RootCertName})
			if got := f.Object.Data[rootCertKey]; got != wants || f.Object.Annotations[EpochAnnotation] != "2" {
				t.Errorf("there is %q of epoch %s, the successor wants %q", got, f.Object.Annotations[EpochAnnotation], wants)
			}
		})
	}
}

// A write starts only if this process certainly leads, and ends before its lease. A write that conflicts with another
// one is computed again from the present object. A failed write is retried, and a problem reports it meanwhile.
func TestWritesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var until time.Time
		w, stop := leads(t, c.api(), 1, func(config *Config[corev1.ConfigMap]) {
			config.Until = func(context.Context) (time.Time, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if until.IsZero() {
					return until, errors.New("etcd is away")
				}
				return until, nil
			}
		})
		defer stop()
		w.Want(RootCerts([]string{"shop"}, "one"))
		pass(time.Minute)
		if n := c.count(); n != 0 {
			t.Fatalf("%d writes, and nobody knows who leads", n)
		}
		c.play(func() { c.hang, until = true, time.Now().Add(2*time.Second) })
		pass(2 * time.Second)
		if p := w.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "deadline") {
			t.Errorf("the lease is over, and a write goes on: %v", p)
		}
		c.play(func() { c.hang, c.refuse, until = false, errors.New("forbidden"), time.Now().Add(time.Hour) })
		pass(10 * time.Second)
		if p := w.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "forbidden") || c.count() < 2 || c.count() > 5 {
			t.Errorf("writes are refused: %v after %d", p, c.count())
		}
		c.play(func() { c.refuse, c.unseen = nil, true })
		c.put(Key{"shop", RootCertName}, "kubectl", &corev1.ConfigMap{Data: map[string]string{"more": "stays"}})
		pass(time.Minute)
		f, _ := c.Get(t.Context(), Key{"shop", RootCertName})
		if f.Object.Data[rootCertKey] != "one" || f.Object.Data["more"] != "stays" || len(w.Problems()) > 0 {
			t.Errorf("after a conflict: %v, %v", f.Object.Data, w.Problems())
		}
	})
}
