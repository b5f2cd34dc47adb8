package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func get(t *testing.T, url string, headers ...string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	json.Unmarshal(b, &out) // an error page is no JSON
	return resp.StatusCode, out
}

// A call goes to the egress address with the service in the Host header, and its response is returned inside the app's
// own.
func TestCallGoesThroughTheEgress(t *testing.T) {
	seen := make(chan *http.Request, 1)
	envoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, `{"version":"v2"}`)
	}))
	defer envoy.Close()
	a := &app{name: "web", version: "v1", to: upstreams{}, client: newClient(strings.TrimPrefix(envoy.URL, "http://"), nil)}
	if err := a.to.Set("reviews=http://reviews.shop:80"); err != nil {
		t.Fatal(err)
	}
	self := httptest.NewServer(a)
	defer self.Close()
	code, got := get(t, self.URL+"/call/reviews/x/y?q=1", "End-User", "jason", "X-Envoy-Attempt-Count", "1")
	if body, _ := got["body"].(map[string]any); code != 200 || got["status"] != 418.0 || body["version"] != "v2" {
		t.Errorf("%d %v", code, got)
	}
	r := <-seen
	if r.Host != "reviews.shop:80" || r.URL.String() != "/x/y?q=1" || r.Header.Get("End-User") != "jason" || r.Header.Get("X-Envoy-Attempt-Count") != "" {
		t.Errorf("upstream saw %s %s %v", r.Host, r.URL, r.Header)
	}
	if code, _ := get(t, self.URL+"/call/nobody/"); code != 404 {
		t.Errorf("unknown upstream: %d", code)
	}
}

func TestFaults(t *testing.T) {
	a := &app{name: "web", version: "v1"}
	self := httptest.NewServer(a)
	defer self.Close()
	for _, bad := range []string{"/_fail?ratio=2", "/_fail?ratio=1&status=9", "/_fail", "/_delay?ms=x"} {
		if code, _ := get(t, self.URL+bad); code != 400 {
			t.Errorf("%s: %d", bad, code)
		}
	}
	get(t, self.URL+"/_fail?ratio=1&status=503")
	if code, _ := get(t, self.URL+"/"); code != 503 {
		t.Errorf("with the fault: %d", code)
	}
	get(t, self.URL+"/_fail?ratio=0")
	if code, got := get(t, self.URL+"/"); code != 200 || got["version"] != "v1" {
		t.Errorf("without the fault: %d %v", code, got)
	}
}

func TestResolveStandsInForDNS(t *testing.T) {
	there := httptest.NewServer(&app{name: "there"})
	defer there.Close()
	h := hosts{}
	if err := h.Set("shop.invalid=127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	a := &app{to: upstreams{}, client: newClient("", h)}
	if err := a.to.Set("there=http://shop.invalid:" + there.URL[strings.LastIndexByte(there.URL, ':')+1:]); err != nil {
		t.Fatal(err)
	}
	self := httptest.NewServer(a)
	defer self.Close()
	if _, got := get(t, self.URL+"/call/there/"); got["status"] != 200.0 {
		t.Errorf("got %v", got)
	}
	for _, bad := range []string{"x", "x=y"} {
		if err := h.Set(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
