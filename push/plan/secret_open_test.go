package plan

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// When a private key cannot be opened, the previous key stays (or none is sent), the reason is logged, and it is tried
// again. A rotated key is sent as soon as it is opened, and its proxies are notified.
func TestSecretsThatCannotBeOpened(t *testing.T) {
	const name = "kubernetes://web"
	var log bytes.Buffer
	o := &opener{err: errors.New("the provider is away")}
	inBubble(t, Config{Opener: o, Authoriser: &judge{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(tlsSecret(t, "shop/web", "one", "", "1"), used(t, "web"))
		moved := 0
		p, err := l.Join(t.Context(), gateway("shop", "shop"), func(path Path) {
			if moved++; path != Slow {
				t.Error("a Secret went in the path of endpoints")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want string, moves int) {
			t.Helper()
			synctest.Wait()
			if got := held(t, p.Set(), name); got != want || moved != moves {
				t.Fatalf("%q after %d moves, want %q after %d", got, moved, want, moves)
			}
		}
		p.SubscribeSecrets(t.Context(), []string{name}, nil)
		expect("pending", 1)
		if !strings.Contains(log.String(), "Secret shop/web") || !strings.Contains(log.String(), "the provider is away") {
			t.Errorf("log: %s", log.String())
		}
		o.set(nil)
		pass(openPause)
		expect("one, key of 1", 2)

		o.set(errors.New("away again"))
		src.put(tlsSecret(t, "shop/web", "two", "", "2"))
		pass(time.Minute)
		expect("one, key of 1", 2)
		o.set(nil)
		pass(openPause)
		expect("two, key of 2", 3)

		src.put(tlsSecret(t, "shop/web", "three", "", "3"))
		pass(time.Second)
		expect("three, key of 3", 4)
		src.put(tlsSecret(t, "shop/elsewhere", "x", "", "x"), svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"))
		pass(time.Second)
		o.mu.Lock()
		defer o.mu.Unlock()
		if want := []string{"shop/web", "shop/web", "shop/web"}; !slices.Equal(o.opened, want) {
			t.Errorf("opened %q, want %q: no other Secret, and none again", o.opened, want)
		}
	})
}

// A key that was opened for a previous version of the Secret is not sent: it would not belong to the certificate.
func TestOpenedTooLate(t *testing.T) {
	one, two := tlsSecret(t, "shop/web", "one", "", "1").(*model.Secret), tlsSecret(t, "shop/web", "two", "", "2").(*model.Secret)
	p := New(Settings{Snapshot: snapshot(one, used(t, "web"))})
	h := p.Join(gateway("shop", "shop"))
	p.SubscribeSecrets(h, []string{"kubernetes://web"}, nil)
	p.Authorised(h.Node.Verified, access.Standing{Known: true, Allowed: true})
	if got := p.secrets.Sealed(); len(got) != 1 || got[0] != one || len(p.secrets.Sealed()) != 0 {
		t.Fatalf("to be opened: %v", got)
	}
	p.Apply(p.input.Snapshot.Apply(2, []model.Record{two}, nil))
	if moved := p.Opened(one, model.PrivateKey("key 1")); moved != nil || held(t, h.Set(), "kubernetes://web") != "pending" {
		t.Errorf("%v, %s", moved, held(t, h.Set(), "kubernetes://web"))
	}
	got := p.secrets.Sealed()
	if len(got) != 1 || got[0] != two || p.secrets.Unopened(one) || !p.secrets.Unopened(two) || len(p.secrets.Sealed()) != 1 {
		t.Fatalf("to be opened: %v", got)
	}
	if moved := p.Opened(two, model.PrivateKey("key 2")); len(moved) != 1 || held(t, h.Set(), "kubernetes://web") != "two, key 2" {
		t.Errorf("%v, %s", moved, held(t, h.Set(), "kubernetes://web"))
	}
	// After its deletion no proxy has the Secret, and its key is not kept.
	p.Apply(p.input.Snapshot.Apply(3, nil, []model.Key{two.Key}))
	if held(t, h.Set(), "kubernetes://web") != "" || p.secrets.Keys() != 0 {
		t.Errorf("deleted: %s, %d private keys", held(t, h.Set(), "kubernetes://web"), p.secrets.Keys())
	}
	if specs := p.Explain(h, xds.Secret, "kubernetes://web"); specs != nil {
		t.Errorf("explained as %v", specs)
	}
}
