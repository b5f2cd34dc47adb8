package mirror_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// While etcd is away the last snapshot stays; when etcd is back the mirror continues from its position.
func TestEtcdAway(t *testing.T) {
	s, e := etcd(t)
	first := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 10, 80)})
	m := start(t, s.Connect())
	before := m.reach(first).New
	s.Stop()
	if err := receive(t, "loss of contact", m.contact); err == nil {
		t.Fatal("contact without loss of it")
	}
	if err := m.Ready(); err != nil || m.Current() != before {
		t.Fatalf("ready: %v", err)
	}
	if err := m.Confirm(within(t)); err != nil {
		t.Fatalf("a proxy that comes while etcd is away: %v", err)
	}
	s.Restart(s.Dir())
	second := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 81)})
	if c := m.reach(second); len(c.Edits) != 1 || c.Old != before {
		t.Fatalf("edits %v", c.Edits)
	}
	if err := receive(t, "contact", m.contact); err != nil {
		t.Fatal(err)
	}
	m.pause() // the hook is called after the subscriber
	if n := len(m.relisted); n != 1 {
		t.Fatalf("listed %d times", n)
	}
}

func TestNeverReachedSaysWhy(t *testing.T) {
	s, _ := etcd(t)
	replica := s.Connect()
	s.Stop()
	m := start(t, replica)
	receive(t, "loss of contact", m.contact)
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "nothing was read yet: ") {
		t.Fatalf("ready: %v", err)
	}
}

// fake is a source under a test's control.
type fake struct {
	state   *kv.State
	stats   chan kv.Stat
	asked   chan struct{} // one for each question
	watches chan chan kv.Update
}

func (f *fake) Load(context.Context, int64) (*kv.State, error) { return f.state, nil }

func (f *fake) Watch(context.Context, kv.Position) <-chan kv.Update {
	w := make(chan kv.Update)
	f.watches <- w
	return w
}

func (f *fake) Stat(ctx context.Context) (kv.Stat, error) {
	f.asked <- struct{}{}
	select {
	case s := <-f.stats:
		return s, nil
	case <-ctx.Done():
		return kv.Stat{}, ctx.Err()
	}
}

func newFake(t *testing.T) *fake {
	t.Helper()
	r := service(t, "a", 80)
	raw, err := model.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	head := kv.Head{Revision: 9, Complete: true}
	stats := make(chan kv.Stat, 9)
	stats <- kv.Stat{Cluster: 1, Revision: 10, Head: head} // a list is preceded by a status request
	return &fake{stats: stats, asked: make(chan struct{}, 1000), watches: make(chan chan kv.Update, 9), state: &kv.State{At: kv.Position{Cluster: 1, Revision: 10}, Store: 10,
		Head: head, Complete: 9, Values: []kv.Value{{Path: r.Meta().Key.Path(), Raw: raw}}}}
}

// A watch that went silent is noticed by asking, and begun again.
func TestStuckWatchIsReplaced(t *testing.T) {
	f := newFake(t)
	m := start(t, f)
	first := receive(t, "the watch", f.watches)
	m.reach(9)
	behind := kv.Stat{Cluster: 1, Revision: 20, Head: kv.Head{Revision: 15, Complete: true}}
	for range 3 {
		f.stats <- behind
	}
	second := receive(t, "another watch", f.watches)
	second <- update(15, 9)
	m.reach(15)
	_ = first
}

// Updates of the watch during a check cause no alarm.
func TestCheckRacesWatch(t *testing.T) {
	f := newFake(t)
	m := start(t, f)
	w := receive(t, "the watch", f.watches)
	m.reach(9)
	receive(t, "the question of the list", f.asked)
	receive(t, "a question", f.asked)
	w <- update(30, 9)
	m.reach(30)
	f.stats <- kv.Stat{Cluster: 1, Revision: 10, Head: kv.Head{Revision: 9, Complete: true}} // the answer is older
	for range 2 {
		receive(t, "the question after that", f.asked)
		f.stats <- kv.Stat{Cluster: 1, Revision: 40, Head: kv.Head{Revision: 30, Complete: true}}
	}
	if len(m.alarms) != 0 {
		t.Fatal(<-m.alarms)
	}
}

// following runs a mirror of a fake in a bubble until end, and returns its watch.
func following(t *testing.T, f *fake) (m *mirror.Mirror, watch chan kv.Update, ctx context.Context, end func()) {
	t.Helper()
	m, err := mirror.New(mirror.Config{Source: f, CheckEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	return m, <-f.watches, ctx, func() { cancel(); <-ended }
}

// A replica that is behind waits before its first answer on a stream; all that join together share one read.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		m, w, ctx, end := following(t, f)
		defer end()
		at := func(revision int64) kv.Stat {
			return kv.Stat{Cluster: 1, Revision: revision, Head: kv.Head{Revision: revision, Complete: true}}
		}
		f.stats <- at(9)
		if err := m.Confirm(ctx); err != nil {
			t.Fatal(err)
		}
		confirmed := make(chan error, 100)
		asked := len(f.asked)
		for range 100 {
			go func() { confirmed <- m.Confirm(ctx) }()
		}
		f.stats <- at(12)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if n := len(f.asked) - asked; n != 1 {
			t.Fatalf("%d reads for 100 streams that join together", n)
		}
		if len(confirmed) != 0 {
			t.Fatalf("%d were answered from a snapshot that is behind", len(confirmed))
		}
		w <- update(12, 9)
		for range 100 {
			if err := <-confirmed; err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := m.Confirm(ctx); err != nil || time.Since(began) > 2*time.Second { // no response
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		late, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		f.stats <- at(99)
		if err := m.Confirm(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

// A client with outdated state gets no response while etcd does not answer.
func TestConfirmNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		m, w, ctx, end := following(t, f)
		defer end()
		if err := m.ConfirmNow(ctx); err == nil {
			t.Error("nobody answers, and it is confirmed")
		}
		f.stats <- kv.Stat{Cluster: 1, Revision: 12, Head: kv.Head{Revision: 12, Complete: true}}
		confirmed := make(chan error, 1)
		go func() { confirmed <- m.ConfirmNow(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(confirmed) != 0 {
			t.Fatal("confirmed by a snapshot that is behind")
		}
		w <- update(12, 9)
		if err := <-confirmed; err != nil {
			t.Fatal(err)
		}
	})
}

// A replica that is cut off, and behind the revision that a client states, does not answer the client with older state.
// It waits for that revision, and fails at the deadline; also if etcd answers as another store. Statements about
// another store, or about a revision that an answering etcd does not have, are ignored.
func TestConfirmAtMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		m, w, ctx, end := following(t, f)
		defer end()
		confirm := func(cluster uint64, revision int64, within time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			began := time.Now()
			err := m.ConfirmAt(ctx, mirror.Seen{At: kv.Position{Cluster: cluster, Revision: revision}})
			return time.Since(began), err
		}
		// No request is answered from here on: each needs a second.
		const asking, bound = 2 * time.Second, 10 * time.Second
		for name, minimum := range map[string]kv.Position{"none": {}, "reached": {Cluster: 1, Revision: 9}, "of another store": {Cluster: 2, Revision: 99}} {
			if took, err := confirm(minimum.Cluster, minimum.Revision, bound); err != nil || took > asking {
				t.Errorf("a minimum that is %s: %v after %v", name, err, took)
			}
		}
		for name, cluster := range map[string]uint64{"of this store": 1, "of a store not named": 0} {
			if took, err := confirm(cluster, 12, bound); !errors.Is(err, mirror.ErrBehind) || took != bound {
				t.Errorf("a minimum %s that is not reached: %v after %v, want %v after %v", name, err, took, mirror.ErrBehind, bound)
			}
		}
		f.stats <- kv.Stat{Cluster: 2, Revision: 99, Head: kv.Head{Revision: 99, Complete: true}}
		if _, err := confirm(1, 12, bound); !errors.Is(err, mirror.ErrBehind) {
			t.Errorf("etcd is another: %v, want %v", err, mirror.ErrBehind)
		}
		answered := make(chan error, 1)
		go func() { _, err := confirm(1, 12, time.Hour); answered <- err }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(answered) != 0 {
			t.Fatal("answered from a snapshot that is behind")
		}
		w <- update(12, 9)
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
		// Etcd answers: no client can have seen a later revision.
		f.stats <- kv.Stat{Cluster: 1, Revision: 12, Head: kv.Head{Revision: 12, Complete: true}}
		if took, err := confirm(1, 1<<60, bound); err != nil || took > asking {
			t.Errorf("a forged minimum: %v after %v", err, took)
		}
		gone, stop := context.WithCancel(ctx)
		go func() { time.Sleep(5 * time.Second); stop() }()
		if err := m.ConfirmAt(gone, mirror.Seen{At: kv.Position{Cluster: 1, Revision: 99}}); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that went: %v", err)
		}
	})
}

// A store with older state than a client was served, according to its place in the chain of heads, was restored from a
// backup. A replica that remembers nothing newer does not serve that client from it, until a leader has begun a new
// term or the replica has the client's state. A client that claims an invented place waits alone, until the deadline.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestConfirmAtPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		m, w, ctx, end := following(t, f)
		defer end()
		head := func(revision, last int64, place kv.Place) kv.Update {
			return kv.Update{Revision: revision, Head: &kv.Head{Revision: revision, Complete: true, LastComplete: last, Place: place}}
		}
		at := func(term, seq uint64) kv.Place { return kv.Place{Chain: 7, Term: term, Seq: seq} }
		w <- head(12, 9, at(3, 5))
		synctest.Wait()
		confirm := func(place kv.Place, within time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			began := time.Now()
			f.stats <- kv.Stat{Cluster: 1, Revision: 12, Head: kv.Head{Revision: 12, Complete: true, Place: at(3, 5)}}
			err := m.ConfirmAt(ctx, mirror.Seen{At: kv.Position{Cluster: 1, Revision: 12}, Place: place})
			return time.Since(began), err
		}
		const bound = 10 * time.Second
		for name, place := range map[string]kv.Place{"none": {}, "the same": at(3, 5), "older": at(2, 99), "of another chain": {Chain: 8, Term: 9}} {
			if took, err := confirm(place, bound); err != nil || took > time.Second {
				t.Errorf("a place that is %s: %v after %v", name, err, took)
			}
		}
		if took, err := confirm(at(3, 6), bound); !errors.Is(err, mirror.ErrBehind) || took != bound || !strings.Contains(err.Error(), "restored from a backup") {
			t.Errorf("of a later batch: %v after %v", err, took)
		}
		answered := make(chan error, 1)
		go func() { _, err := confirm(at(4, 1), time.Hour); answered <- err }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := confirm(kv.Place{}, bound); err != nil || len(answered) != 0 {
			t.Fatalf("others: %v; who waits: %d answers", err, len(answered))
		}
		w <- head(13, 12, at(5, 0))
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// A kind that contradicts the head is listed before it is held, because the watch may have missed something. While the
// list contradicts the head too it is repeated, after a second and then less and less often, whatever the watch
// delivers.
func TestHeldKindsAreListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		m, watch, _, end := following(t, f)
		defer end()
		lost := endpoints(t, "a", "10.0.0.1")
		raw, err := model.Encode(lost)
		if err != nil {
			t.Fatal(err)
		}
		whole := append(slices.Clone(f.state.Values), kv.Value{Path: lost.Meta().Key.Path(), Raw: raw})
		// lists returns the next list, whose head describes all its values.
		lists := func(revision int64, stored []kv.Value) kv.Head {
			said := kv.ContentsOf(whole)
			head := kv.Head{Revision: revision, Complete: true, LastComplete: f.state.Complete, Contents: said}
			f.state = &kv.State{At: kv.Position{Cluster: 1, Revision: revision}, Store: revision, Head: head, Complete: revision, Said: said, Contents: kv.ContentsOf(stored), Values: stored}
			f.stats <- kv.Stat{Cluster: 1, Revision: revision, Head: head}
			return head
		}
		head := lists(12, whole)
		watch <- kv.Update{Revision: 12, Head: &head} // without the record
		began := time.Now()
		watch = <-f.watches
		synctest.Wait()
		if took := time.Since(began); took > 200*time.Millisecond { // a pause between two tries
			t.Errorf("listed after %v", took)
		}
		if m.Current().Len(model.KindEndpoints) != 1 || len(m.Status().Held) != 0 {
			t.Errorf("%d records, held %v: what the watch left out was not listed", m.Current().Len(model.KindEndpoints), m.Status().Held)
		}
		head = lists(14, whole[:1])
		watch <- kv.Update{Revision: 14, Head: &head, Values: []kv.Value{{Path: lost.Meta().Key.Path()}}}
		<-f.watches
		synctest.Wait()
		if held := m.Status().Held; len(held) != 1 || held[0].Kind != "Endpoints" || m.Current().Len(model.KindEndpoints) != 1 {
			t.Errorf("held %v", held)
		}
		lists(16, whole)
		time.Sleep(firstRelistAtMost)
		synctest.Wait()
		if held := m.Status().Held; len(held) != 0 {
			t.Errorf("held %v although a list would agree", held)
		}
	})
}

// firstRelistAtMost is longer than the pauses before a list that is begun by itself.
const firstRelistAtMost = 10 * time.Second

// update is an empty batch after the complete revision last.
func update(revision, last int64) kv.Update {
	return kv.Update{Revision: revision, Head: &kv.Head{Revision: revision, Complete: true, LastComplete: last}}
}

// A watch that leaves something out is not believed: the mirror lists again, and has it.
func TestGapInWatch(t *testing.T) {
	f := newFake(t)
	m := start(t, f)
	w := receive(t, "the watch", f.watches)
	m.reach(9)
	receive(t, "the first list", m.relisted)
	head := kv.Head{Revision: 30, Complete: true, LastComplete: 20}
	f.state = &kv.State{At: kv.Position{Cluster: 1, Revision: 31}, Store: 31, Head: head, Complete: 30}
	f.stats <- kv.Stat{Cluster: 1, Revision: 31, Head: head}
	w <- update(30, 20)
	receive(t, "the second list", m.relisted)
	if c := m.reach(30); len(c.Edits) != 1 || c.Edits[0].New != nil {
		t.Fatalf("edits %v", c.Edits)
	}
}
