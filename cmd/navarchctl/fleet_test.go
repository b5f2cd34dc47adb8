package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
)

// Proxies that have gone are listed with the time, a wait for one of them is answered, and a silent replica is not
// taken for a sound one.
func TestGoneProxies(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.URL.Path == fleetapi.Root+"proxies" && q.Get("namespace") == "none":
			fmt.Fprint(w, `{"items": [], "sums": {"total": {}}}`)
		case r.URL.Path == fleetapi.Root+"proxies" && q.Get("state") == "gone" && (q.Get("name") == "" || q.Get("name") == "web-0.shop"):
			fmt.Fprint(w, `{"items": [{"proxy": "web-0.shop", "node": "n", "replica": "a", "state": "gone", "cluster": "c", "types": null,
				"since": "2026-11-30T16:50:00Z"}], "sums": {"total": {"gone": 1}}}`)
		case r.URL.Path == fleetapi.Root+"proxies":
			fmt.Fprint(w, `{"items": [], "sums": {"total": {"in_sync": 2, "gone": 1}}}`)
		case r.URL.Path == "/debug/syncz":
			fmt.Fprint(w, `[]`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(web.Close)
	server := strings.TrimPrefix(web.URL, "http://")
	for _, one := range []struct {
		args             []string
		out, err, failed string
	}{
		{nil, "2 in sync, 0 behind, 0 refusing, 1 gone", "next: navarchctl proxy-status --where state=gone -o wide", ""},
		{[]string{"--exit-code"}, "1 gone", "", ""},
		{[]string{"--where", "state=gone", "-o", "wide"}, "until 2026-11-30T16:50:00Z", "", ""},
		{[]string{"--where", "state=gone", "-o", "name"}, "web-0.shop\n", "", ""},
		{[]string{"-n", "none"}, "0 proxies", "note: no proxy matches", ""},
		{[]string{"web-0.shop"}, "", "", "; its stream to replica a ended at 2026-11-30T16:50:00Z"},
		{[]string{"web-1.shop"}, "", "", `proxy "web-1.shop" is not connected to ` + server},
		{[]string{"--server", server + ",127.0.0.1:1"}, "2 in sync", "127.0.0.1:1 (no answer)", ""},
		{[]string{"--server", "127.0.0.1:1," + server, "--exit-code"}, "2 in sync",
			"127.0.0.1:1 (no answer)", "or a replica did not answer"},
	} {
		out, warnings, err := ran(append([]string{"ps", "--server", server}, one.args...)...)
		if !strings.Contains(out, one.out) || !strings.Contains(warnings, one.err) ||
			(err == nil) != (one.failed == "") || err != nil && !strings.Contains(err.Error(), one.failed) {
			t.Errorf("%v: %v\n%s%s", one.args, err, out, warnings)
		}
	}
}

// After a held removal of a kind, which names no object, the list of removals follows.
func TestNextAfterAHeldRemoval(t *testing.T) {
	for object, want := range map[string]string{"AuthorizationPolicy": "removals list",
		"AuthorizationPolicy shop/a": "wait AuthorizationPolicy/a.shop"} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"items": [{"object": %q, "code": "Held", "severity": "error", "message": "m"}]}`, object)
		}))
		_, next, err := ran("problems", "--server", strings.TrimPrefix(web.URL, "http://"))
		if err != nil || !strings.Contains(next, "next: navarchctl "+want) {
			t.Errorf("%s: %v\n%s", object, err, next)
		}
		web.Close()
	}
}

// With --watch the fleet is printed again, below the time, until the command is interrupted, which is no error.
func TestWatchedFleet(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var asked atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != fleetapi.Root+"proxies" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"items": [], "sums": {"total": {"in_sync": %d}}}`, 10+asked.Add(1))
		if asked.Load() == 2 {
			time.AfterFunc(300*time.Millisecond, interrupt)
		}
	}))
	defer web.Close()
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs([]string{"ps", "--watch", "--server", strings.TrimPrefix(web.URL, "http://")})
	cmd.SetOut(&out)
	began := time.Now()
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if n := asked.Load(); n != 2 || time.Since(began) < watchEvery {
		t.Errorf("%d answers in %v", n, time.Since(began))
	}
	if want := regexp.MustCompile(`(?s)^11 proxies: 11 in sync.*\n\n\d\d:\d\d:\d\d\n12 proxies: 12 in sync`); !want.MatchString(out.String()) {
		t.Errorf("%s", out.String())
	}
}
