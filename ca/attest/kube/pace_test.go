package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

// A client that sends requests without end waits for its own pace, and does not delay others.
// Promise: security-workloads.md#identity-and-private-keys
func TestPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(rate.NewLimiter(10, 10), 1, 2, 100)
		begun := time.Now()
		for range 12 { // two at once, then one a second
			if err := p.wait(t.Context(), "loud"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("12 questions of one took %v", took)
		}
		begun = time.Now()
		for _, who := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			if err := p.wait(t.Context(), who); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 1500*time.Millisecond || took > 2*time.Second { // 26, ten at once and ten a second
			t.Errorf("26 questions of others took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for range 3 {
			_ = p.wait(ctx, "late")
		}
		if p.wait(ctx, "late") == nil {
			t.Error("a question that comes too late has its turn")
		}
	})
}

// The API server receives requests about one service account at a bounded rate, and about others meanwhile: an account
// whose bindings change all the time causes no further load.
// Promise: security-workloads.md#identity-and-private-keys
func TestRightsAreAskedAtAPace(t *testing.T) {
	asked := map[string]int{}
	access := NewAccess(apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		fmt.Fprint(w, `{"status": {"allowed": true}}`)
	}))
	access.pace.each = rate.Every(time.Hour) // or a slow machine would have another turn of the account
	soon, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Minute))
	defer cancel()
	for i := range accountBurst {
		if allowed, _, err := access.MayListSecrets(soon, "shop", "loud"); err != nil || !allowed {
			t.Fatalf("question %d: %v, %v", i, allowed, err)
		}
	}
	now, end := context.WithTimeout(t.Context(), time.Millisecond) // its next turn is later
	defer end()
	if allowed, _, err := access.MayListSecrets(now, "shop", "loud"); err == nil || allowed || !strings.Contains(err.Error(), "not sent before the rate limits allow it") {
		t.Errorf("one more: %v, %v", allowed, err)
	}
	if allowed, _, err := access.MayListSecrets(soon, "shop", "good"); err != nil || !allowed {
		t.Errorf("another account: %v, %v", allowed, err)
	}
	if n := asked["/apis/authorization.k8s.io/v1/subjectaccessreviews"]; n != accountBurst+1 || len(asked) != 1 {
		t.Errorf("asked %v", asked)
	}
}
