package denials

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// ring is a keyring that revokes identities, with the emitted events.
type ring struct {
	mu      sync.Mutex
	known   bool
	revoked []keyring.Denial
	changed chan struct{}
	events  []object.Event
}

func (r *ring) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *ring) emit(all []object.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, all...)
}

// emitted returns the events since the last call.
func (r *ring) emitted() []object.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.events
	r.events = nil
	return all
}

func (r *ring) denied(now time.Time) (all []keyring.Denial, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.revoked {
		if one.Until.IsZero() || now.Before(one.Until) {
			all = append(all, one)
		}
	}
	return all, r.known
}

func (r *ring) becomes(known bool, revoked ...keyring.Denial) {
	r.mu.Lock()
	was := r.changed
	r.known, r.revoked, r.changed = known, revoked, make(chan struct{})
	r.mu.Unlock()
	close(was)
	synctest.Wait()
}

// Nothing is emitted before the keyring is known. Then one event is emitted, also without revoked identities, because
// the stored object would stay otherwise. Then each change is emitted, and the end of an identity's last certificate,
// which does not change the keyring.
func TestSourceFollowsKeyring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{changed: make(chan struct{})}
		expect := func(what string, want ...string) {
			t.Helper()
			events := r.emitted()
			if len(want) == 0 != (len(events) == 0) {
				t.Fatalf("%s: %d events", what, len(events))
			}
			for i, e := range events {
				all, err := normal.NewDenied(nil)
				if want[i] != "" {
					all, err = normal.NewDenied([]string{want[i]})
				}
				if err != nil || e.Op != object.Put || e.ID != normal.DeniedID || fmt.Sprint(e.Object) != fmt.Sprint(all) {
					t.Errorf("%s: event %d is %v %v, want %v (%v)", what, i, e.Op, e.Object, all, err)
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- Source{Denied: r.denied, Changed: r.next, Emit: r.emit, Log: slog.New(slog.DiscardHandler)}.Run(ctx)
		}()
		synctest.Wait()
		expect("the keyring is not known")
		r.becomes(true)
		expect("nobody is revoked", "")
		r.becomes(true)
		expect("another state with the same content")
		const web = "spiffe://cluster.local/ns/shop/sa/web"
		r.becomes(true, keyring.Denial{Identity: web, Until: time.Now().Add(10 * time.Minute)})
		expect("one is revoked", web)
		r.becomes(false)
		expect("the keyring cannot be read any more")
		r.becomes(true, keyring.Denial{Identity: web, Until: time.Now().Add(10 * time.Minute)})
		expect("it can again")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		expect("its last certificate has ended", "")
		r.becomes(true, keyring.Denial{Identity: web})
		expect("revoked without an end", web)
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		expect("an end that is not known does not come")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// An event before the state is known makes the ingester retain the stored object. The event concerns that object only,
// and is not its removal.
func TestUnknownKeepsWhatIsStored(t *testing.T) {
	if events := Unknown(); len(events) != 1 || events[0].Op != object.Broken || events[0].ID != normal.DeniedID {
		t.Errorf("%+v", slices.Clone(events))
	}
}
