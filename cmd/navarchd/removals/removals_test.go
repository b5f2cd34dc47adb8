package removals

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/removal"
)

// played is a Loop in memory.
type played struct {
	mu       sync.Mutex
	held     []removal.Hold
	accepted []string
}

func (p *played) Removals(kv.Epoch) ([]removal.Hold, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.held), true
}

func (p *played) Accept(_ context.Context, id string) (removal.Hold, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.held, func(h removal.Hold) bool { return h.ID == id })
	if i < 0 {
		return removal.Hold{}, false
	}
	h := p.held[i]
	p.held, p.accepted = slices.Delete(p.held, i, i+1), append(p.accepted, id)
	return h, true
}

func (p *played) took() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.accepted)
}

func hold(id, namespace string, ends time.Time) removal.Hold {
	return removal.Hold{ID: id, Kind: "Service", Namespace: namespace, Count: 5, Kinds: map[string]int{"Service": 5}, Names: []string{"Service " + namespace + "/a"}, Ends: ends, Waits: ends.IsZero()}
}

// until polls until `is` returns true; the test makes no assumption about the time.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

// Every process and the next leader know a leader's held removals; ended ones are deleted, and so are those of older
// builds. A process keeps its list while a stored value does not decode.
func TestKeeper(t *testing.T) {
	etcd, loop := kvtest.Start(t), &played{held: []removal.Hold{hold("waits", "shop", time.Time{}), hold("over", "apps", time.Now().Add(-time.Second))}}
	etcd.Put("removals/held", "of an older build")
	known, out := &Known{}, &envoytest.Output{}
	log := slog.New(slog.NewTextHandler(out, nil))
	k := &Keeper{Store: etcd.Store, Loop: loop, Name: "one", Log: log}
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	defer both.Wait()
	defer cancel()
	both.Go(func() { _ = known.Follow(ctx, etcd.Connect(), log) })
	both.Go(func() { k.Lead(ctx, etcd.Elect("one")) })
	all := func(string) bool { return true }
	until(t, "what waits is known, and what is over has gone", func() bool {
		l := known.Of(all)
		return len(l.Held) == 1 && l.Held[0].ID == "waits" && l.Leader == "one" && slices.Equal(loop.took(), []string{"over"})
	})
	if l := known.Of(func(namespace string) bool { return namespace == "apps" }); len(l.Held) != 0 {
		t.Errorf("a tenant sees %v", l.Held)
	}
	recalled, err := k.Recall(t.Context())
	if err != nil || len(recalled) != 1 || recalled[0].ID != "waits" || recalled[0].Namespace != "shop" {
		t.Errorf("recalled %+v, %v", recalled, err)
	}
	blobs, _, err := etcd.Blobs(t.Context(), folder, 0)
	if err != nil || len(blobs) != 1 {
		t.Errorf("stored: %v, %v", blobs, err)
	}
	etcd.Put(path, `{"held": [{"id": "x", "why": "of tomorrow"}]}`)
	if recalled, err := k.Recall(t.Context()); err != nil || len(recalled) != 0 {
		t.Errorf("of a newer build: %v, %v", recalled, err)
	}
	until(t, "the value of a newer build is logged", func() bool { return strings.Contains(out.String(), "known before stay listed") })
	cancel()
	if both.Wait(); len(known.Of(all).Held) != 1 {
		t.Errorf("after a value of a newer build: %v", known.Of(all).Held)
	}
	many := make([]removal.Hold, 3*mostHolds)
	for i := range many {
		many[i] = hold(fmt.Sprint(i), "shop", time.Time{})
		many[i].Names = slices.Repeat([]string{strings.Repeat("x", 256)}, 200)
	}
	if raw, err := json.Marshal(bounded(many)); err != nil || len(raw) > 1<<20 {
		t.Errorf("%d bytes are stored, %v", len(raw), err)
	}
}

// reviewer starts an API server that knows tokens, and which users may accept removals in which namespaces.
func reviewer(t *testing.T, users map[string]string, may map[string]bool) *apiserver.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			var review authenticationv1.TokenReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			user, known := users[review.Spec.Token]
			review.Status.Authenticated, review.Status.User = known, authenticationv1.UserInfo{Username: user, Groups: []string{"g"},
				Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=1"}}}
			_ = json.NewEncoder(w).Encode(review)
			return
		}
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = a.Group == "navarch.io" && a.Resource == "removals" && a.Verb == "accept" && slices.Equal(review.Spec.Groups, []string{"g"}) && may[review.Spec.User+" "+a.Namespace]
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	api, err := apiserver.Of(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// The API server identifies the acceptor of a removal by the token, and decides whether it may accept in the removal's
// namespace. Without an API server only callers who may see everything may accept. The log names the acceptor.
// Promise: security-tenants.md#remove-many-objects
func TestAccept(t *testing.T) {
	users := map[string]string{"root": "admin", "t": "tenant", "n": "nobody"}
	may := map[string]bool{"admin ": true, "admin shop": true, "tenant shop": true}
	const bearer = "Bearer "
	for _, c := range []struct {
		what, header, id string
		kube, all, leads bool
		status           int
		user             string
	}{
		{what: "an administrator", header: bearer + "root", id: "everywhere", kube: true, leads: true, status: 200, user: "admin (JTI=1)"},
		{what: "a tenant's", header: bearer + "t", id: "shop", kube: true, leads: true, status: 200, user: "tenant (JTI=1)"},
		{what: "another tenant's", header: bearer + "t", id: "apps", kube: true, leads: true, status: 403},
		{what: "that of all", header: bearer + "t", id: "everywhere", kube: true, leads: true, status: 403},
		{what: "who has no right", header: bearer + "n", id: "shop", kube: true, leads: true, status: 403},
		{what: "no token, on this machine", id: "shop", kube: true, all: true, leads: true, status: 401},
		{what: "another credential", header: "Basic root", id: "shop", kube: true, all: true, leads: true, status: 401},
		{what: "a token that nobody knows", header: bearer + "x", id: "shop", kube: true, all: true, leads: true, status: 401},
		{what: "no such removal", header: bearer + "root", id: "none", kube: true, leads: true, status: 404},
		{what: "who does not lead", header: bearer + "root", id: "shop", kube: true, status: 421},
		{what: "files, this machine", id: "shop", all: true, leads: true, status: 200, user: "me"},
		{what: "files, from elsewhere", id: "shop", leads: true, status: 403},
		{what: "files, no such removal", id: "none", all: true, leads: true, status: 404},
	} {
		var log bytes.Buffer
		loop := &played{held: []removal.Hold{hold("shop", "shop", time.Time{}), hold("apps", "apps", time.Time{}), hold("everywhere", "", time.Time{})}}
		k := &Keeper{Loop: loop, Log: slog.New(slog.NewTextHandler(&log, nil))}
		k.leads.Store(c.leads)
		a := NewAcceptor(k, &Known{known: stored{Held: loop.held}}, nil)
		if c.kube {
			a.API = reviewer(t, users, may)
		}
		request := httptest.NewRequest(http.MethodPost, Path+"?accept="+c.id, nil)
		request.Header.Set("Authorization", c.header)
		answer := httptest.NewRecorder()
		a.Accept("me", c.all, answer, request)
		went := loop.took()
		if answer.Code != c.status || (len(went) == 1) != (c.status == 200) || c.status == 200 && !strings.Contains(log.String(), fmt.Sprintf("user=%q", c.user)) && !strings.Contains(log.String(), "user="+c.user+" ") {
			t.Errorf("%s: %d %s went %v\n%s", c.what, answer.Code, answer.Body, went, log.String())
		}
	}
	var none *Acceptor
	answer := httptest.NewRecorder()
	if none.Accept("me", true, answer, httptest.NewRequest(http.MethodPost, Path, nil)); answer.Code != http.StatusMisdirectedRequest {
		t.Errorf("a process without role ingest: %d", answer.Code)
	}
}
