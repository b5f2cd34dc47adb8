package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/lead"
)

// reviews simulates an API server whose decisions the function `allowed` makes.
func reviews(t *testing.T, allowed func(authorizationv1.ResourceAttributes) bool) *writeRights {
	t.Helper()
	api := apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
			t.Errorf("%s: %v", r.URL, err)
		}
		review.Status.Allowed = allowed(*review.Spec.ResourceAttributes)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	})
	return &writeRights{api: api, must: []right{{"update", "", "configmaps", "", "roots"}, {"update", "g", "things", "status", ""}}, log: slog.New(slog.DiscardHandler), every: time.Millisecond}
}

// A leader keeps its term while one of its writes is permitted, while the API server does not answer, and while there
// is no other candidate. It resigns once everything is refused, with the reason; the next time it waits twice as long.
func TestUnfitLeaderGivesUp(t *testing.T) {
	one := reviews(t, func(a authorizationv1.ResourceAttributes) bool { return a.Subresource == "status" })
	if why, known := one.ask(t.Context()); why != "" || !known {
		t.Errorf("one write of two is allowed: %q %v", why, known)
	}
	silent := reviews(t, nil)
	silent.api = apiservertest.Play(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	if why, known := silent.ask(t.Context()); known {
		t.Errorf("the API server does not answer: %q", why)
	}
	deleted := reviews(t, nil)
	deleted.api = apiservertest.Play(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	if why, known := deleted.ask(t.Context()); !known || !strings.Contains(why, "token") {
		t.Errorf("the service account is gone: %q %v", why, known)
	}
	none, asked := reviews(t, func(authorizationv1.ResourceAttributes) bool { return false }), 0
	none.waiting = func(context.Context) (bool, error) {
		asked++
		if problems := none.problems(); len(problems) != 1 || !strings.Contains(problems[0].Message, "update configmaps roots, nor update things/status") {
			t.Errorf("problems %v", problems)
		}
		return asked > 2, nil
	}
	err := none.fit(t.Context())
	if !errors.Is(err, errUnfit) || !strings.Contains(err.Error(), "update configmaps roots, nor update things/status") || asked != 3 || none.gaveUp != 1 {
		t.Errorf("after %d questions for others: %v", asked, err)
	}
	none.after = time.Hour / 2
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := none.fit(ctx); !errors.Is(err, context.DeadlineExceeded) || none.problems() != nil {
		t.Errorf("it does not wait: %v, %v", err, none.problems())
	}
}

// A leader that is unfit ends its term, and the candidate who waits leads.
func TestUnfitLeaderIsReplaced(t *testing.T) {
	etcd := kvtest.Start(t)
	w := reviews(t, func(authorizationv1.ResourceAttributes) bool { return false })
	candidate := func(name string, fit func(context.Context) error) (*lead.Elector, <-chan kv.Epoch) {
		elector, err := lead.New(lead.Config{Store: etcd.Connect(), Name: name, Lease: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		led := make(chan kv.Epoch, 9)
		go func() {
			_ = elector.Run(t.Context(), func(ctx context.Context, epoch kv.Epoch) error {
				led <- epoch
				return fit(ctx)
			})
		}()
		return elector, led
	}
	began := make(chan struct{})
	var first *lead.Elector
	w.waiting = func(ctx context.Context) (bool, error) {
		<-began
		return first.Waiting(ctx)
	}
	elector, led := candidate("without rights", w.fit)
	first = elector
	<-led
	if another, err := first.Waiting(t.Context()); err != nil || another {
		t.Errorf("nobody else is there: %v %v", another, err)
	}
	close(began)
	_, next := candidate("with rights", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	<-next
}
