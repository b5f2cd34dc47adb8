package progress

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// screen is a terminal: it keeps what was written.
type screen struct {
	mu  sync.Mutex
	all strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

// text returns what was written since the last call.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.all.Reset()
	return s.all.String()
}

// slow answers a request when it is told to.
type slow struct{ answer chan struct{} }

func (s slow) RoundTrip(*http.Request) (*http.Response, error) {
	<-s.answer
	return &http.Response{Body: io.NopCloser(strings.NewReader("x"))}, nil
}

// A line stands on the terminal after a second in which a request was not answered. Output of the command replaces it,
// and nothing is left behind.
func TestLineOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var terminal, out screen
		ctx, o, e, stop := Start(t.Context(), &terminal, &out, &terminal)
		server := slow{make(chan struct{})}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 2 {
				q, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
				res, err := Transport(server).RoundTrip(q)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
			}
		}()
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			got := terminal.text()
			if at := strings.LastIndex(got, erase); at >= 0 {
				got = got[at:]
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		after(patience-time.Millisecond, "")
		after(2*time.Millisecond, erase+"0 of 1 requests are answered, 1s")
		server.answer <- struct{}{}
		after(time.Second, erase+"1 of 2 requests are answered, 2s")
		_, _ = io.WriteString(o, "result\n")
		if got := terminal.text(); got != erase || out.text() != "result\n" {
			t.Errorf("before output: %q", got)
		}
		after(patience-interval, "")
		_, _ = io.WriteString(e, "warning\n")
		after(0, "warning\n") // no line is there to erase
		server.answer <- struct{}{}
		<-done
		after(time.Minute, "") // nothing is asked any more
		stop()
		after(time.Minute, "")
	})
}

// Work beside requests has a line of its own, which stop erases.
func TestLineOfWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var terminal screen
		ctx, _, _, stop := Start(t.Context(), &terminal, io.Discard, io.Discard)
		done := Work(ctx, "reading files")
		time.Sleep(patience + time.Millisecond)
		synctest.Wait()
		if got := terminal.text(); got != erase+"reading files, 1s" {
			t.Errorf("%q", got)
		}
		stop()
		if got := terminal.text(); got != erase {
			t.Errorf("at the end %q", got)
		}
		done()
		Work(context.Background(), "unreported")()
	})
}
