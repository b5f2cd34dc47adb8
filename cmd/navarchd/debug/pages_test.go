package debug

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/removals"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// madeOf are the sources of a refused resource.
var madeOf = []model.Place{{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, Field: "spec.configPatches[2]"},
	{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "c"}}}

// A version that a thousand proxies refuse is one problem, at the object that it was built from. Another version is
// another problem.
func TestRefusalsAreShownOnce(t *testing.T) {
	var all []serve.Refusal
	for i := range 1000 {
		all = append(all, serve.Refusal{Node: fmt.Sprintf("p%d", i), Type: xds.Cluster, Name: "c", Version: "1", Text: "no",
			Objects: madeOf})
	}
	all = append(all, serve.Refusal{Node: "q", Type: xds.Cluster, Name: "c", Version: "2", Text: "no"})
	got := refused(all)
	if len(got) != 2 {
		t.Fatalf("%d problems: %+v", len(got), got)
	}
	if p := got[0]; p.Object != "EnvoyFilter shop/f" || p.Field != "spec.configPatches[2]" || p.Location != "proxy p0 and 999 more" ||
		!slices.Equal(p.Related, []string{"Service shop/c"}) || !strings.Contains(p.Message, "cluster c was refused") {
		t.Errorf("%+v", p)
	}
	if p := got[1]; p.Object != "cluster c" || p.Location != "proxy q" {
		t.Errorf("whose maker is not known: %+v", p)
	}
}

// A version that is withheld from a view is a problem of the object that it was built from, with all facts for an
// operator. A tenant sees such problems of its own proxies.
func TestWithheldProblems(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	all := []quarantine.Withheld{
		{Key: quarantine.Key{View: "shop.view", Type: xds.Listener, Name: "l", Version: "v1"}, Namespace: "shop", Envoys: []string{"", "1.40.0"},
			RefusedBy: 3, First: at, Last: at.Add(time.Minute), Text: "no such luck", Objects: madeOf},
		{Key: quarantine.Key{View: "town.view", Type: xds.Cluster, Name: "c", Version: "v2"}, Namespace: "town", Envoys: []string{""}, RefusedBy: 4, First: at, Last: at},
		{Key: quarantine.Key{View: "town.view", Type: xds.Cluster, Name: "c", Version: "v2", Identity: "spiffe://mesh/ns/town/sa/hall"}, Namespace: "hall", Envoys: []string{""}, RefusedBy: 5, First: at, Last: at},
	}
	got := withheld(all, nil)
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	want := "version v1 of listener l is withheld from all proxies of Envoy 1.40.0 of the view, because 3 distinct identities refused it, " +
		"first at 2023-11-14T22:13:20Z, last at 2023-11-14T22:14:20Z: no such luck"
	if p := got[0]; p.Object != "EnvoyFilter shop/f" || p.Field != "spec.configPatches[2]" || p.Location != "view shop.view" ||
		!slices.Equal(p.Related, []string{"Service shop/c"}) || p.Message != want || p.Severity != problem.Error || p.Code != problem.Refused {
		t.Errorf("%+v", p)
	}
	if p := got[1]; p.Object != "cluster c" || !strings.Contains(p.Message, "the error is not known here") {
		t.Errorf("whose maker is not known: %+v", p)
	}
	if p := got[2]; !strings.Contains(p.Message, "from all proxies of spiffe://mesh/ns/town/sa/hall of the view, because 5 of their credentials refused it") {
		t.Errorf("of one identity: %+v", p)
	}
	if got := withheld(all, func(namespace string) bool { return namespace == "town" }); len(got) != 1 || got[0].Location != "view town.view" {
		t.Errorf("a tenant sees %+v", got)
	}
}

// Objects are named by the parts of their names that exist.
func TestNamed(t *testing.T) {
	for want, id := range map[string]object.ID{
		"Service shop/web": {Kind: "Service", Namespace: "shop", Name: "web"}, "Service": {Kind: "Service"}, "": {},
		"Pod in cluster west": {Origin: origin.New("west", origin.Kube), Kind: "Pod"}, "in cluster west": {Origin: origin.New("west", origin.Kube)},
	} {
		if got := Named(id); got != want {
			t.Errorf("%+v: got %q, want %q", id, got, want)
		}
	}
}

// A caller's costly pages are made in turn, and occupy only its part of the queue. All callers of this machine count as
// one.
func TestCostlyPagesAreCountedByCaller(t *testing.T) {
	p := &Pages{turns: web.NewTurns(1, 1)}
	of := func(ctx context.Context, name string, costly bool) (func(), error) {
		_, read, err := p.shown(authz.Caller{Name: name}).Turn(ctx, costly)
		return read, err
	}
	done, err := of(t.Context(), "a", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := of(t.Context(), "a", true); err == nil {
		t.Error("a second of one caller")
	}
	if _, err := of(t.Context(), "a", false); err != nil {
		t.Errorf("one that is not costly, of a caller who sees everything: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := of(gone, "b", true); err == nil {
		t.Error("two at once")
	}
	done()
	if done, err = of(t.Context(), "b", true); err != nil {
		t.Fatal(err)
	}
	done()
}

// A tenant's pages are made one after the other, with a pause, whichever pages and identities; callers who see
// everything, and other tenants, do not wait.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestTenantsArePaced(t *testing.T) {
	p := New(Pages{})
	of := func(tenant, name string) authz.Caller {
		return authz.Caller{Name: name, Tenant: tenant, Sees: func(string) bool { return false }}
	}
	made, _, err := p.Turn(t.Context(), of("shop", "a"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer made()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, one := range []struct {
		who  authz.Caller
		want int
	}{{of("shop", "a"), http.StatusTooManyRequests}, {of("shop", "b"), http.StatusTooManyRequests}, {of("town", "c"), http.StatusOK}, {authz.Caller{Name: "a"}, http.StatusOK}} {
		ctx, times := t.Context(), 1
		if one.want != http.StatusOK {
			ctx, times = gone, 20 // without the limit some would be answered
		}
		for range times {
			w := httptest.NewRecorder()
			p.debug(one.who).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/syncz", nil).WithContext(ctx))
			if w.Code != one.want {
				t.Fatalf("%q of tenant %q: %d", one.who.Name, one.who.Tenant, w.Code)
			}
			if one.want == http.StatusOK {
				continue
			}
			w = httptest.NewRecorder() // each costs the API server two questions
			p.debug(one.who).ServeHTTP(w, httptest.NewRequest(http.MethodPost, removals.Path+"?accept=x", nil).WithContext(ctx))
			if w.Code != one.want {
				t.Fatalf("%q of tenant %q accepts a removal: %d", one.who.Name, one.who.Tenant, w.Code)
			}
		}
	}
}

// Two costly pages are made concurrently. Of one caller, eight are being made, waiting, or not read yet.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestCostlyPagesAreFew(t *testing.T) {
	take := func(ctx context.Context, p *Pages, caller string) (made func(), err error) {
		made, _, err = p.Turn(ctx, authz.Caller{Name: caller}, true)
		return made, err
	}
	p := New(Pages{})
	for _, caller := range []string{"a", "b"} {
		if _, err := take(t.Context(), p, caller); err != nil {
			t.Error(err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 20 { // without the limit some would get a turn
		if _, err := take(gone, p, "c"); !errors.Is(err, context.Canceled) {
			t.Fatalf("a third at once: %v", err)
		}
	}
	p = New(Pages{})
	for range 8 {
		made, err := take(t.Context(), p, "a")
		if err != nil {
			t.Fatal(err)
		}
		made()
	}
	if _, err := take(t.Context(), p, "a"); !errors.Is(err, web.ErrBusy) {
		t.Errorf("a ninth that is not read: %v", err)
	}
	if _, err := take(t.Context(), p, "b"); err != nil {
		t.Errorf("another caller's: %v", err)
	}
}
