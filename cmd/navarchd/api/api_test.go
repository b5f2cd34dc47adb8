package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/shard/member"
)

// Other replicas are asked in the caller's turn, and for a page of one proxy only if this process does not have it.
func TestWhenOthersAreAsked(t *testing.T) { synctest.Test(t, whenOthersAreAsked) }

func whenOthersAreAsked(t *testing.T) {
	asked := make(chan struct{}, 10)
	replicas := &ask.Replicas{Self: "a", Members: func() []member.Record {
		asked <- struct{}{}
		return nil
	}}
	rules := &authz.Authorizer{Open: true}
	a := New(Config{Self: "a", Rules: rules, Pages: debug.New(debug.Pages{Rules: rules}), Members: replicas.Members, Replicas: replicas})
	who := authz.Caller{Name: "spiffe://cluster.local/ns/shop/sa/a", Tenant: "shop", Sees: func(of string) bool { return of == "shop" }}
	unlimited := func(url.Values) (time.Duration, error) { return 0, nil }
	part := func(status int) func(*API, context.Context, authz.Caller, url.Values) (any, error) {
		return func(*API, context.Context, authz.Caller, url.Values) (any, error) {
			if status != http.StatusOK {
				return nil, statusError{status, "no"}
			}
			return json.RawMessage(`"page"`), nil
		}
	}
	var turns []func()
	for i := range waitsOfTenant { // of several identities of one tenant
		other := who
		other.Name += strconv.Itoa(i % 3)
		_, read, err := a.turn(t.Context(), &endpoint{waits: unlimited}, other)
		if err != nil {
			t.Fatal(err)
		}
		turns = append(turns, read)
	}
	for _, one := range []struct {
		what   string
		of     endpoint
		busy   bool
		status int
		asked  int
	}{
		{"more than its turns", endpoint{waits: unlimited, part: part(http.StatusOK)}, true, http.StatusTooManyRequests, 0},
		{"within its turns", endpoint{waits: unlimited, part: part(http.StatusOK)}, false, 0, 1},
		{"a page of an own proxy", endpoint{paged: true, part: part(http.StatusOK)}, false, 0, 0},
		{"a page of another proxy", endpoint{paged: true, part: part(http.StatusNotFound)}, false, http.StatusNotFound, 1},
		{"a page that is refused", endpoint{paged: true, part: part(http.StatusForbidden)}, false, http.StatusForbidden, 0},
	} {
		if !one.busy {
			for _, read := range turns {
				read()
			}
		}
		one.of.merge = merging(mergeFirst)
		_, read, err := a.answer(t.Context(), &one.of, who, nil, nil)
		read()
		if status := statusOf(err); err != nil && status != one.status || (err == nil) != (one.status == 0) {
			t.Errorf("%s: %v", one.what, err)
		}
		synctest.Wait()
		if got := len(asked); got != one.asked {
			t.Errorf("%s: %d questions to others, want %d", one.what, got, one.asked)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
}
