package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/peer"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// The last positive result for a token is used while the API server is away. A refusal ends it, and is cached for a
// short time. A result that does not name one of our audiences is not positive.
// Promise: security-workloads.md#tokens
func TestReviews(t *testing.T) {
	var asked atomic.Int32
	var away atomic.Bool
	gone := atomic.Bool{}
	r := NewReviews(apiservertest.Play(t, func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		var in tokenReview
		if err := json.NewDecoder(q.Body).Decode(&in); err != nil || q.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" || fmt.Sprint(in.Spec.Audiences) != "[istio-ca]" {
			t.Errorf("%s, %+v, %v", q.URL.Path, in, err)
		}
		audiences, user := `["istio-ca"]`, "system:serviceaccount:shop:web"
		switch {
		case away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case in.Spec.Token == "bad" || gone.Load():
			fmt.Fprint(w, `{"status": {"authenticated": false, "error": "invalid bearer token"}}`)
			return
		case in.Spec.Token == "audience":
			audiences = "[]"
		case in.Spec.Token == "person":
			user = "admin"
		}
		fmt.Fprintf(w, `{"status": {"authenticated": true, "audiences": %s, "user": {"username": %q, "extra": {"authentication.kubernetes.io/pod-name": ["web-1"]}}}}`, audiences, user)
	}), "east")
	now := time.Now()
	r.now = func() time.Time { return now }
	review := func(token string) (attest.Reviewed, error) { return r.Review(t.Context(), token, []string{"istio-ca"}) }
	want := attest.Reviewed{Namespace: "shop", ServiceAccount: "web", Pod: "web-1", Cluster: "east"}
	good := func(when string, questions int32) {
		t.Helper()
		before := asked.Load()
		if got, err := review("good"); err != nil || got != want || asked.Load()-before != questions {
			t.Errorf("%s: %+v, %v, %d questions", when, got, err, asked.Load()-before)
		}
	}
	good("at first", 1)
	good("again", 0)
	now = now.Add(reviewStands)
	good("later", 1)
	away.Store(true)
	now = now.Add(24 * time.Hour)
	good("while the API server is away", 1)
	if _, err := review("other"); !errors.Is(err, attest.ErrUnavailable) {
		t.Errorf("another token, while the API server is away: %v", err)
	}
	away.Store(false)
	for token, want := range map[string]error{"bad": attest.ErrDenied, "audience": attest.ErrAudience, "person": attest.ErrIdentity} {
		before := asked.Load()
		for range 3 {
			if _, err := review(token); !errors.Is(err, want) {
				t.Errorf("%s: %v", token, err)
			}
		}
		if asked.Load()-before != 1 {
			t.Errorf("%s: asked about %d times", token, asked.Load()-before)
		}
	}
	gone.Store(true)
	now = now.Add(reviewStands)
	if _, err := review("good"); !errors.Is(err, attest.ErrDenied) {
		t.Errorf("of a Pod that was deleted: %v", err)
	}
	away.Store(true)
	now = now.Add(time.Hour)
	if _, err := review("good"); !errors.Is(err, attest.ErrUnavailable) {
		t.Errorf("and while the API server is away: %v", err)
	}
}

// A client that requests token reviews without end uses the capacity of its own address only.
// Promise: security-workloads.md#tokens
func TestReviewsAreBounded(t *testing.T) {
	r := NewReviews(apiservertest.Play(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status": {"authenticated": false, "error": "no"}}`)
	}), "east")
	now := time.Now()
	r.now = func() time.Time { return now }
	from := func(address, token string) error {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 1}})
		_, err := r.Review(ctx, token, []string{"istio-ca"})
		return err
	}
	denied := 0
	for i := range 200 {
		switch err := from(fmt.Sprintf("2001:db8::%d", i), fmt.Sprint("junk", i)); {
		case errors.Is(err, attest.ErrDenied):
			denied++
		case !errors.Is(err, attest.ErrUnavailable) || !strings.Contains(err.Error(), "too many"):
			t.Fatal(err)
		}
	}
	if denied != sourceBurst {
		t.Errorf("%d questions of one /64 at once, want %d", denied, sourceBurst)
	}
	if err := from("10.0.0.1", "x"); !errors.Is(err, attest.ErrDenied) {
		t.Errorf("another source: %v", err)
	}
	if n := r.refused.Len(); n != sourceBurst+1 {
		t.Errorf("%d refusals are kept", n)
	}
}
