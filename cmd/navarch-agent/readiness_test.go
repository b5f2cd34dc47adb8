package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/shard/relay"
	"navarch.io/navarch/store/loopback"
)

// All reasons that make the proxy unready are reported at once.
func TestMissing(t *testing.T) {
	const cds, lds, bad = "cluster_manager.cds.update_success", "listener_manager.lds.update_success", "listener_manager.lds.update_rejected"
	both := map[string]int{cds: 1, lds: 1}
	away := relay.Stats{Address: "istiod:15012", LastError: "refused"}
	for name, c := range map[string]struct {
		in   condition
		want string
	}{
		"ready":                 {condition{mustHave: true, have: true, updates: both}, ""},
		"ready, CA away":        {condition{mustHave: true, have: true, configured: true, noCertificate: errors.New("x")}, ""},
		"ready, istiod away":    {condition{configured: true, xds: away}, ""},
		"draining":              {condition{draining: true, updates: both}, "draining"},
		"no certificate":        {condition{mustHave: true, updates: both, noCertificate: errors.New("no token")}, "no certificate of the mesh yet: no token"},
		"no names":              {condition{noNames: true, updates: both}, "the control plane has not sent the names for the Pod's DNS yet"},
		"Envoy away":            {condition{configured: true, envoy: errors.New("Envoy does not answer")}, "Envoy does not answer"},
		"refused configuration": {condition{updates: map[string]int{cds: 1, bad: 1}}, "Envoy refused"},
		"refused listener": {condition{updates: both, refused: []relay.Refused{{Type: "x", Names: []string{"c"}, Total: 1}, {Type: ldsType, Names: []string{"a", "b"}, Total: 3, Error: "cannot bind"}}},
			"Envoy refused listeners a, b and 1 more: cannot bind"},
		"refused cluster":          {condition{updates: both, refused: []relay.Refused{{Type: cdsType, Names: []string{"c"}, Total: 1}}}, ""},
		"refused, then configured": {condition{configured: true, refused: []relay.Refused{{Type: ldsType, Total: 1}}}, ""},
		"half of it":               {condition{updates: map[string]int{cds: 1}}, "a part"},
		"none":                     {condition{xds: relay.Stats{Connects: 1}}, "no configuration yet"},
		"everything":               {condition{mustHave: true, envoy: errors.New("Envoy is INITIALIZING"), xds: away}, "no certificate of the mesh yet; Envoy is INITIALIZING; the control plane at istiod:15012 is not reached: refused"},
	} {
		if got := strings.Join(c.in.missing(), "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// However many readiness requests arrive, at most twenty requests per second go to Envoy.
// Promise: security-connections.md#ports-of-an-agent
func TestReadinessIsLookedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l readinessCache
		looks := 0
		look := func() error {
			looks++
			time.Sleep(time.Second)
			return fmt.Errorf("look %d", looks)
		}
		ask := func(want string) {
			t.Helper()
			for range 100 {
				if err := l.get(look); err.Error() != want {
					t.Errorf("%v, want %s", err, want)
				}
			}
		}
		ask("look 1")
		time.Sleep(refreshEvery - 1)
		ask("look 1")
		time.Sleep(time.Nanosecond)
		ask("look 2")
	})
	if refreshEvery < time.Second/20 {
		t.Errorf("Envoy is asked every %v", refreshEvery)
	}
	var l readinessCache
	var looking, most atomic.Int32
	var all sync.WaitGroup
	for range 100 { // concurrent requests share one check
		all.Go(func() {
			_ = l.get(func() error {
				most.Store(max(most.Load(), looking.Add(1)))
				for range 1000 {
					runtime.Gosched()
				}
				looking.Add(-1)
				return nil
			})
		})
	}
	if all.Wait(); most.Load() != 1 {
		t.Errorf("Envoy is asked by %d at once", most.Load())
	}
}

// Envoy reports LIVE without a listener that it has refused. The agent is not ready then, and gives the reason.
func TestRefusedConfigurationIsNotReady(t *testing.T) {
	ads := newFakeADS(t, loopback.For(t), "127.0.0.1:1")
	ads.resources[ldsType].Resource.Value = nil
	addr, _ := ads.start(t, "127.0.0.1:0")
	p := startAgent(t, addr, "--xds-plaintext")
	p.until("refused", func(d debugPage) bool { return strings.HasPrefix(d.NotReady, "Envoy refused listeners in: ") })
	if code := p.readiness(); code != 503 {
		t.Errorf("/healthz/ready: %d", code)
	}
}

// Envoy reports LIVE without a listener that it cannot bind. The agent is not ready before that listener exists too,
// and names it with the reason.
func TestListenerThatCannotBindIsNotReady(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") // released below, and Envoy's then
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ads := newFakeADS(t, taken.Addr().String(), "127.0.0.1:1")
	rest := newFakeADS(t, loopback.For(t), "127.0.0.1:1").resources[ldsType]
	rest.Name, rest.Resource = "rest", renamed(t, rest.Resource, "rest")
	ads.afterRefusal = make(chan *discoveryv3.Resource, 2)
	ads.afterRefusal <- rest
	addr, _ := ads.start(t, "127.0.0.1:0")
	p := startAgent(t, addr, "--xds-plaintext")
	const why = "Envoy refused listeners in: "
	var whole time.Time // the time at which Envoy had the rest
	fresh := false      // the page's facts were read after that (refreshEvery)
	page := p.until("refused", func(d debugPage) bool {
		done := fresh && d.NotReady != "" && !strings.Contains(d.NotReady, "INITIALIZING")
		n, err := newAdmin(p.admin).stats(t.Context(), configStats)
		if whole.IsZero() && err == nil && n["listener_manager.lds.update_success"] > 0 && n["cluster_manager.cds.update_success"] > 0 {
			whole = time.Now()
		}
		fresh = !whole.IsZero() && time.Since(whole) > refreshEvery
		return done
	})
	if !strings.HasPrefix(page.NotReady, why) || !strings.Contains(page.NotReady, "cannot bind") {
		t.Errorf("not ready: %q, want %q and Envoy's words", page.NotReady, why)
	}
	if code := p.readiness(); code != 503 {
		t.Errorf("/healthz/ready: %d", code)
	}
	taken.Close()
	ads.afterRefusal <- ads.resources[ldsType]
	p.until("ready", func(d debugPage) bool { // the log comes a moment after the page
		return d.Ready && len(d.XDS.Rejected) == 0 && strings.Contains(p.out.String(), "Envoy no longer refuses resources of a type")
	})
	for _, line := range []string{"Envoy refused resources", "Envoy no longer refuses resources of a type"} {
		if n := strings.Count(p.out.String(), line); n != 1 {
			t.Errorf("the log says %q %d times", line, n)
		}
	}
}

func renamed(t *testing.T, packed *anypb.Any, name string) *anypb.Any {
	t.Helper()
	l := &listenerv3.Listener{}
	if err := packed.UnmarshalTo(l); err != nil {
		t.Fatal(err)
	}
	l.Name = name
	out, err := anypb.New(l)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestShutdown(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		vars   map[string]string
		want   shutdown
		bad    string
	}{
		"default":  {"", nil, shutdown{wait: defaultWait, least: defaultWait}, ""},
		"config":   {"terminationDrainDuration: 9s", nil, shutdown{wait: 9 * time.Second, least: defaultWait}, ""},
		"variable": {"terminationDrainDuration: 9s", map[string]string{"TERMINATION_DRAIN_DURATION_SECONDS": "0"}, shutdown{least: defaultWait}, ""},
		"idle":     {"{proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true', MINIMUM_DRAIN_DURATION: 2s}}", nil, shutdown{wait: defaultWait, whenIdle: true, least: 2 * time.Second}, ""},
		"seconds":  {"", map[string]string{"TERMINATION_DRAIN_DURATION_SECONDS": "5s"}, shutdown{}, "want a number"},
		"minimum":  {"", map[string]string{"MINIMUM_DRAIN_DURATION": "5"}, shutdown{}, "want a duration"},
		"boolean":  {"", map[string]string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "on"}, shutdown{}, "want true"},
	} {
		proxy, err := proxyConfig("", c.config, "")
		if err != nil {
			t.Fatal(err)
		}
		var got shutdown
		err = got.complete(&identity{proxy: proxy, vars: c.vars})
		if (err == nil) != (c.bad == "") || err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Without connections Envoy still drains for the whole time, because callers may not know yet. With whenIdle the agent
// waits for the least time, until the last connection has ended, and no longer.
func TestDrainWaits(t *testing.T) {
	var active atomic.Int64
	drained := make(chan string, 4)
	envoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			drained <- r.URL.String()
			return
		}
		fmt.Fprintf(w, `{"stats":[{"name":"listener.admin.downstream_cx_active","value":1},{"name":"listener.0.0.0.0_15006.downstream_cx_active","value":%d}]}`, active.Load())
		active.CompareAndSwap(1, 0)
	}))
	defer envoy.Close()
	a, log := newAdmin(strings.TrimPrefix(envoy.URL, "http://")), slog.New(slog.DiscardHandler)
	began := time.Now()
	a.drain(t.Context(), shutdown{wait: 300 * time.Millisecond}, log)
	if took := time.Since(began); took < 300*time.Millisecond || <-drained != "/drain_listeners?inboundonly&graceful" {
		t.Errorf("it drained for %v", took)
	}
	active.Store(1) // seen once, then gone
	began = time.Now()
	a.drain(t.Context(), shutdown{wait: time.Hour, whenIdle: true, least: 100 * time.Millisecond}, log)
	if took := time.Since(began); took < 100*time.Millisecond+drainPoll {
		t.Errorf("with a connection it drained for %v", took)
	}
}
