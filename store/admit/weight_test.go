package admit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"navarch.io/navarch/store/turns"
)

// reviewWith is a review with members of its request.
func reviewWith(members string) string {
	return `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", ` + members + `}}`
}

// listOf is a list of n elements.
func listOf(element string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

// chooser is not concerned with objects whose name is idle.
type chooser struct{ handler }

func (chooser) Concerns(r *admissionv1.AdmissionRequest) bool { return r.Name != "idle" }

// Reviews that would decode to too much are refused before they are decoded. The response names the bound.
// Promise: security-admission.md#expensive-objects
func TestHeavyReviews(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		code    int
		allowed bool
		says    string
	}{
		"as many as there may be":     {reviewWith(`"object": {"a": ` + listOf("{}", maxValues-20) + `}`), http.StatusOK, true, ""},
		"object":                      {reviewWith(`"object": {"a": ` + listOf("{}", maxValues) + `}`), http.StatusOK, false, "100000 JSON values"},
		"object before":               {reviewWith(`"object": {}, "oldObject": {"a": ` + listOf("[]", maxValues) + `}`), http.StatusOK, false, "100000 JSON values"},
		"so many that it is not read": {reviewWith(`"object": {"a": ` + listOf("{}", endless) + `}`), http.StatusRequestEntityTooLarge, false, "400000 JSON values"},
		"both together":               {reviewWith(`"object": ` + listOf("1", maxValues-1) + `, "oldObject": ` + listOf("1", maxValues-1)), http.StatusOK, true, ""},
		"a key repeated":              {reviewWith(`"object": ` + listOf("1", maxValues/2) + `, "object": ` + listOf("1", maxValues/2)), http.StatusOK, false, "100000 JSON values"},
		"a long object":               {reviewWith(`"object": {"a": "` + strings.Repeat("x", maxObject) + `"}`), http.StatusOK, false, "3145728 bytes"},
		"of no concern":               {reviewWith(`"name": "idle", "object": ` + listOf("{}", maxValues)), http.StatusOK, true, ""},
		"beside the object":           {reviewWith(`"userInfo": {"groups": ` + listOf(`"a"`, maxBeside) + `}, "object": {}`), http.StatusBadRequest, false, "10000 JSON values"},
		"beside the request":          {`{"a": ` + listOf("{}", maxBeside) + `, ` + reviewWith(`"object": {}`)[1:], http.StatusBadRequest, false, "10000 JSON values"},
		"no object at all":            {listOf("{}", maxValues), http.StatusBadRequest, false, ""},
		"too deep":                    {reviewWith(`"object": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300)), http.StatusBadRequest, false, "levels"},
	} {
		t.Run(name, func(t *testing.T) {
			s, handled := New(Config{}), 0
			s.Register("test", "/test", chooser{func(context.Context, string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				handled++
				return Allow()
			}}, nil)
			w := post(s, "/test", c.body)
			var review admissionv1.AdmissionReview
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Fatalf("%d %.300s", w.Code, w.Body)
			}
			if c.code != http.StatusOK {
				return
			}
			if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response.Allowed != c.allowed || review.Response.UID != "u" {
				t.Errorf("%v: %.300s", err, w.Body)
			}
			if want := c.says == "" && name != "of no concern"; (handled == 1) != want {
				t.Errorf("handled %d times", handled)
			}
		})
	}
}

// A review of 8 MB with 2.7 million values is refused before all of it has been read.
// Promise: security-admission.md#expensive-objects
func TestHeavyReviewsTakeLittle(t *testing.T) {
	s := newServer(Config{}, func(context.Context, string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return Allow()
	})
	body := reviewWith(`"object": {"spec": {"configPatches": ` + listOf("{}", 2_700_000) + `}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := post(s, "/test", body)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(body)) || !strings.Contains(w.Body.String(), "JSON values") {
		t.Errorf("a review of %d bytes took %d: %.200s", len(body), took, w.Body)
	}
}

// Large reviews of a webhook wait for one another. Neither its other reviews nor those of another webhook wait for
// them, however many there are, with the lines of a new server.
// Promise: security-admission.md#turns-and-connections
func TestLargeReviewsWaitForOneAnother(t *testing.T) {
	b := newBusy(t, Config{Timeout: 2 * time.Minute}) // no large review ends within a minute
	b.s.Register("other", "/other", b.s.webhooks[0].handler, nil)
	one, other := b.s.webhooks[0], b.s.webhooks[1]
	large := fmt.Sprintf(`"name": "large", "object": {"a": %s}`, listOf("{}", largeValues))
	waits := func(line *turns.Line, n int) {
		t.Helper()
		for until := time.Now().Add(time.Minute); line.Waiting() < n && len(b.entered) == 0; runtime.Gosched() {
			if time.Now().After(until) {
				t.Fatalf("%d reviews wait, want %d", line.Waiting(), n)
			}
		}
		if len(b.entered) > 0 {
			t.Fatal("more reviews are worked on at once than there are turns")
		}
	}
	begins := func(path, review string) {
		t.Helper()
		b.all.Go(func() { post(b.s, path, review) })
		select {
		case <-b.entered:
		case <-time.After(time.Minute / 2):
			t.Fatalf("a review of %s waits for others", path)
		}
	}
	begins("/test", reviewWith(large))
	for range 2 {
		b.all.Go(func() { post(b.s, "/test", reviewWith(large)) })
	}
	waits(one.large, 2)
	begins("/other", reviewWith(large))
	b.all.Go(func() { post(b.s, "/other", reviewWith(large)) })
	waits(other.large, 1)
	turnsOf := max(2, runtime.GOMAXPROCS(0)) / 2 // of one namespace
	for range turnsOf {
		begins("/test", good)
	}
	for range 3 {
		b.all.Go(func() { post(b.s, "/test", good) })
	}
	waits(one.small, 3)
	for range turnsOf {
		begins("/other", good)
	}
	b.end()
}

// A large review that does not end leaves the turn to others in time.
// Promise: security-admission.md#turns-and-connections
func TestLargeReviewEnds(t *testing.T) {
	b := newBusy(t, Config{Timeout: 2 * time.Second})
	large := fmt.Sprintf(`"name": "large", "object": {"a": %s}`, listOf("{}", largeValues))
	codes := make(chan int, 1)
	began := time.Now()
	b.all.Go(func() { codes <- post(b.s, "/test", reviewWith(large)).Code })
	<-b.entered
	b.all.Go(func() { post(b.s, "/test", reviewWith(large)) })
	<-b.entered // the first one is over
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the turn was occupied for %v", took)
	}
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("status %d", code)
	}
	b.end()
}
