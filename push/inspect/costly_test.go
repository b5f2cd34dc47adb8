package inspect

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/push/manifest"
)

// reader counts as one that has not read while taken says so.
type reader struct {
	*httptest.ResponseRecorder
	write func()
}

func (r reader) Write(b []byte) (int, error) {
	r.write()
	return r.ResponseRecorder.Write(b)
}

// What plans or decodes all of a proxy is made under the bound that Config has, of which the one part is given back before the
// answer is written, so that a slow reader holds up nobody, and the other after it; other pages are not held up by it.
func TestCostlyPages(t *testing.T) {
	taken, unread, makes := 0, 0, 0
	refuse := false
	web := Stream{Proxy: "web.shop", Node: "n", Held: func() Resources { makes += taken; return Resources{} },
		Explain: func() (*manifest.Set, Specs, error) { makes += taken; return nil, nil, errors.New("lost it") }}
	h := Handler(Config{Streams: func() []Stream { return []Stream{web} }, Problems: func() []Problem { return nil },
		Costly: func(ctx context.Context) (func(), func(), error) {
			if refuse {
				return nil, nil, errors.New("too many")
			}
			taken++
			unread++
			return func() { taken-- }, func() { taken, unread = 0, unread-1 }, nil
		}})
	written := 0
	visit := func(path string) (int, string) {
		w := reader{httptest.NewRecorder(), func() { written = 10*taken + unread }}
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	const explain, dump = "/debug/explain?proxyID=web.shop&resource=x", "/debug/config_dump?proxyID=web.shop"
	if _, _ = visit(explain); makes != 1 || taken != 0 {
		t.Errorf("explain was made %d times under the bound, which is held %d times after it", makes, taken)
	}
	if _, _ = visit(dump); makes != 2 || taken != 0 || unread != 0 {
		t.Errorf("config_dump was made %d times under the bound, which is held %d and %d times after it", makes-1, taken, unread)
	}
	if written != 1 {
		t.Errorf("while the dump was written, %d were being made and %d unread; want 0 and 1", written/10, written%10)
	}
	refuse = true
	for _, path := range []string{explain, dump} {
		if code, body := visit(path); code != 429 || !strings.Contains(body, "too many") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{"/debug/", "/debug/syncz", "/debug/problems", "/debug/connections"} {
		if code, body := visit(path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
