package admit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/turns"
)

// handler is a function as a Handler.
type handler func(ctx context.Context, path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// Admit implements Handler.
func (h handler) Admit(ctx context.Context, path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return h(ctx, path, r)
}

func newServer(c Config, h handler) *Server {
	c.Log = slog.New(slog.DiscardHandler)
	s := New(c)
	s.Register("test", "/test/", h, nil) // as without the slash
	return s
}

func post(s http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

const good = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "name": "a", "object": {"a": 1}}}`

// A review of either version is answered in that version, with its UID, by the handler of its path.
func TestAnswers(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		var asked string
		s := newServer(Config{}, func(_ context.Context, path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			asked = path + " " + r.Name + " " + string(r.Object.Raw)
			return Refuse(metav1.StatusReasonInvalid, "not so", "a warning")
		})
		w := post(s, "/test/cluster/x?timeout=5s", strings.Replace(good, "io/v1", "io/"+version, 1))
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &review); w.Code != http.StatusOK || err != nil {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		got := review.Response
		if review.APIVersion != "admission.k8s.io/"+version || review.Kind != "AdmissionReview" || got.UID != "u" || got.Allowed || got.Result.Message != "not so" ||
			len(got.Warnings) != 1 || asked != `/test/cluster/x a {"a": 1}` {
			t.Errorf("%s: %s, asked %q", version, w.Body, asked)
		}
	}
}

// A request that is not a review, or has no response, gets an HTTP error: the server neither panics nor admits the
// object.
func TestRefusals(t *testing.T) {
	admits := func(context.Context, string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return Allow()
	}
	for name, c := range map[string]struct {
		body string
		h    handler
		edit func(*http.Request)
		want int
	}{
		"no review":       {"x", admits, nil, http.StatusBadRequest},
		"empty":           {"", admits, nil, http.StatusBadRequest},
		"null":            {"null", admits, nil, http.StatusBadRequest},
		"another version": {strings.Replace(good, "v1", "v2", 1), admits, nil, http.StatusBadRequest},
		"another kind":    {strings.Replace(good, "AdmissionReview", "Pod", 1), admits, nil, http.StatusBadRequest},
		"no request":      {`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, admits, nil, http.StatusBadRequest},
		"a type":          {strings.Replace(good, `"u"`, `7`, 1), admits, nil, http.StatusBadRequest},
		"deep":            {strings.Repeat(`{"a":`, 1<<16), admits, nil, http.StatusBadRequest},
		"too large":       {good + strings.Repeat(" ", 1<<10), admits, nil, http.StatusRequestEntityTooLarge},
		"too large, no length": {good + strings.Repeat(" ", 1<<10), admits, func(r *http.Request) { r.ContentLength = -1 },
			http.StatusRequestEntityTooLarge},
		"media type": {good, admits, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, http.StatusUnsupportedMediaType},
		"method":     {good, admits, func(r *http.Request) { r.Method = http.MethodGet }, http.StatusMethodNotAllowed},
		"path":       {good, admits, func(r *http.Request) { r.URL.Path = "/tests" }, http.StatusNotFound},
		"panic": {good, func(context.Context, string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			panic("key material")
		}, nil,
			http.StatusInternalServerError},
		"no answer": {good, func(context.Context, string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return nil
		}, nil,
			http.StatusInternalServerError},
		"too late": {good, func(ctx context.Context, _ string, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			<-ctx.Done()
			return Allow()
		}, func(r *http.Request) { r.URL.RawQuery = "timeout=1ms" }, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			s := New(Config{MaxBody: 1 << 10, Log: slog.New(slog.DiscardHandler)})
			s.Register("test", "/test", c.h, func(status int) { failed = status })
			if name == "deep" {
				s.MaxBody = 1 << 20
			}
			r := httptest.NewRequest(http.MethodPost, "/test", strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			if c.edit != nil {
				c.edit(r)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != c.want || strings.Contains(w.Body.String(), "allowed") || strings.Contains(w.Body.String(), "key material") {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.want)
			}
			if failed != c.want && c.want != http.StatusNotFound {
				t.Errorf("told of status %d", failed)
			}
		})
	}
}

// One host occupies at most its share of the bytes, whatever it sends: its next review waits, and one of another host
// does not. All hosts together occupy at most all bytes: then every next review waits.
// Promise: security-admission.md#bytes
func TestRoom(t *testing.T) {
	b := newBusy(t, Config{MaxHost: 2 * int64(len(good)), MaxAll: 4 * int64(len(good))})
	b.s.webhooks[0].small = turns.New(100, 0) // as many at once as there are in this test
	for range 2 {
		b.begin("10.0.0.1:1")
	}
	if w := b.send("10.0.0.1:2", "timeout=1ms"); w.Code != http.StatusServiceUnavailable || len(b.entered) > 0 {
		t.Errorf("a third review of a host that has its share: %d, handled: %d", w.Code, len(b.entered))
	}
	b.begin("10.0.0.2:1")
	if w := b.send("10.0.0.2:2", "timeout=1ms"); w.Code != http.StatusServiceUnavailable || len(b.entered) > 0 {
		t.Errorf("a host takes more than half of what another has left: %d, handled: %d", w.Code, len(b.entered))
	}
	b.begin("10.0.0.3:1")
	if w := b.send("10.0.0.4:1", "timeout=1ms"); w.Code != http.StatusServiceUnavailable || len(b.entered) > 0 {
		t.Errorf("a review for which there is no room at all: %d, handled: %d", w.Code, len(b.entered))
	}
	b.end()
	if w := b.send("10.0.0.1:3", ""); w.Code != http.StatusOK {
		t.Errorf("after all have left: %d %s", w.Code, w.Body)
	}
	if len(b.s.room.hosts) != 0 {
		t.Errorf("%d hosts are still in the room", len(b.s.room.hosts))
	}
}

// stuck is a client that does not read until the test permits it.
type stuck struct {
	*httptest.ResponseRecorder
	written, reads chan struct{}
	until          time.Time
}

func (s *stuck) SetWriteDeadline(at time.Time) error { s.until = at; return nil }

func (s *stuck) Write(b []byte) (int, error) {
	close(s.written)
	<-s.reads
	return s.ResponseRecorder.Write(b)
}

// A response that the client does not read occupies the room of its review, for at most the review's timeout plus a
// moment.
// Promise: security-admission.md#bytes
func TestUnreadAnswers(t *testing.T) {
	s := newServer(Config{MaxHost: int64(len(good))}, func(context.Context, string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return Allow()
	})
	send := func(w http.ResponseWriter, from, query string) {
		r := httptest.NewRequest(http.MethodPost, "/test?"+query, strings.NewReader(good))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = from
		s.ServeHTTP(w, r)
	}
	slow, done := &stuck{ResponseRecorder: httptest.NewRecorder(), written: make(chan struct{}), reads: make(chan struct{})}, make(chan struct{})
	go func() { defer close(done); send(slow, "10.0.0.1:1", "timeout=1s") }()
	<-slow.written
	for from, want := range map[string]int{"10.0.0.1:2": http.StatusServiceUnavailable, "10.0.0.2:1": http.StatusOK} {
		w := httptest.NewRecorder()
		query := "timeout=1ms"
		if want == http.StatusOK {
			query = ""
		}
		if send(w, from, query); w.Code != want {
			t.Errorf("another review, of %s: %d %s", from, w.Code, w.Body)
		}
	}
	if left := time.Until(slow.until); left > time.Second+answerTime {
		t.Errorf("the answer is kept for %v", left)
	}
	close(slow.reads)
	<-done
	w := httptest.NewRecorder()
	if send(w, "10.0.0.1:3", ""); w.Code != http.StatusOK || len(s.room.hosts) != 0 {
		t.Errorf("after it was read: %d %s, %d hosts", w.Code, w.Body, len(s.room.hosts))
	}
}

// For any number and duration of reviews that a host sends for one namespace, a review for another namespace, and one
// from another host, starts at once: a host has at most half of all turns, and a namespace half of these.
// Promise: security-admission.md#turns-and-connections
func TestReviewsTakeTurns(t *testing.T) {
	b := newBusy(t, Config{})
	line := turns.NewOfParts(8, 4, 2)
	b.s.webhooks[0].small = line
	for range 2 {
		b.begin("10.0.0.1:1")
	}
	for range 16 {
		b.all.Go(func() { b.send("10.0.0.1:1", "") })
	}
	for until := time.Now().Add(time.Minute); line.Waiting() < 16; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatalf("%d reviews of the first namespace wait, want 16", line.Waiting())
		}
	}
	for range 2 {
		b.beginIn("10.0.0.1:1", "quiet")
	}
	b.all.Go(func() { b.sendIn("10.0.0.1:1", "", "third") })
	for until := time.Now().Add(time.Minute); line.Waiting() < 17; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatal("a host has more than half of all turns")
		}
	}
	b.begin("10.0.0.2:1")
	if len(b.entered) > 0 {
		t.Errorf("%d more of the first host are worked on", len(b.entered))
	}
	b.end()
}

// busy is a server whose handler blocks until end is closed.
type busy struct {
	s       *Server
	entered chan string // each that is worked on
	leave   chan struct{}
	all     sync.WaitGroup
}

func newBusy(t *testing.T, c Config) *busy {
	b := &busy{entered: make(chan string, 1000), leave: make(chan struct{})}
	b.s = newServer(c, func(ctx context.Context, _ string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		b.entered <- r.Name
		select {
		case <-b.leave:
		case <-ctx.Done():
		}
		return Allow()
	})
	t.Cleanup(b.all.Wait)
	return b
}

func (b *busy) send(from, query string) *httptest.ResponseRecorder { return b.sendIn(from, query, "") }

func (b *busy) sendIn(from, query, namespace string) *httptest.ResponseRecorder {
	body := good
	if namespace != "" {
		body = strings.Replace(good, `"name": "a"`, `"namespace": "`+namespace+`"`, 1)
	}
	r := httptest.NewRequest(http.MethodPost, "/test?"+query, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	b.s.ServeHTTP(w, r)
	return w
}

// begin sends a review that is worked on until end.
func (b *busy) begin(from string) { b.beginIn(from, "") }

func (b *busy) beginIn(from, namespace string) {
	b.all.Go(func() { b.sendIn(from, "", namespace) })
	<-b.entered
}

func (b *busy) end() {
	close(b.leave)
	b.all.Wait()
}

// Warnings keep to the limits of API servers, which cut long texts and drop further ones.
func TestWarnings(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("%02d %s\n", i, strings.Repeat("ü", 300)))
	}
	got, total := Warnings(append(many, many...)), 0
	for _, w := range got {
		n := utf8.RuneCountInString(w)
		if total += n; n > 256 || strings.Contains(w, "\n") {
			t.Errorf("%d characters: %q", n, w)
		}
	}
	if total > 4096 || len(got) < 10 || !strings.Contains(got[len(got)-1], "more warnings are left out") {
		t.Errorf("%d characters in %d warnings, the last is %q", total, len(got), got[len(got)-1])
	}
	if got := Warnings([]string{"a", "a", "", "b"}); strings.Join(got, " ") != "a b" {
		t.Errorf("%q", got)
	}
	if got := Warnings(nil); got != nil {
		t.Errorf("%q of none", got)
	}
}

// Whatever comes is answered: with an AdmissionReview, or with an HTTP error.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{good, "", "null", "[]", `{"request":{"uid":"a"}}`, strings.Replace(good, `{"a": 1}`, "null", 1)} {
		f.Add([]byte(seed))
	}
	s := newServer(Config{}, func(_ context.Context, _ string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return Allow(string(r.Object.Raw))
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/test", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		switch w.Code {
		case http.StatusOK:
			if review := new(admissionv1.AdmissionReview); json.Unmarshal(text, review) != nil || review.Response == nil {
				t.Errorf("the answer is %q", text)
			}
		case http.StatusBadRequest:
		default:
			t.Errorf("%d %s", w.Code, text)
		}
	})
}

// The default bounds of a host, and of all hosts, are the figures of deploy/docs/security-admission.md.
// Promise: security-admission.md#bytes
func TestDefaultLimits(t *testing.T) {
	s := New(Config{})
	if s.MaxBody != 8<<20 || s.MaxHost != 32<<20 || s.MaxAll != 64<<20 || s.Timeout != 10*time.Second || s.BodyTime != 2*time.Second || answerTime != 5*time.Second {
		t.Errorf("a review has %d bytes, a host's %d, all %d, and each %v and %v", s.MaxBody, s.MaxHost, s.MaxAll, s.Timeout, answerTime)
	}
}
