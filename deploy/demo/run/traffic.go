package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// reply is the result of a call through the proxies: web's answer about its upstream's.
type reply struct {
	status        int // of the upstream, as web's Envoy returned it; 0: no response
	name, version string
	host          string
	took          time.Duration
	err           error
}

// caller sends requests to web's proxy, as a user would.
type caller struct {
	base   string // http://ip:port
	host   string // Host header
	client *http.Client
}

func newCaller(base, host string, dial func(context.Context, string, string) (net.Conn, error)) *caller {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	}
	return &caller{base: base, host: host, client: &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: dial},
	}}
}

// call makes web call path ("reviews/x") with the given headers ("k: v").
func (c *caller) call(ctx context.Context, path string, headers ...string) (r reply) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/call/"+path, nil)
	if err != nil {
		return reply{err: err}
	}
	req.Host = c.host
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{err: err}
	}
	if resp.StatusCode != http.StatusOK {
		return reply{err: fmt.Errorf("web answered %d: %.100s", resp.StatusCode, b)}
	}
	var out struct {
		Status int
		Error  string
		MS     int
		Body   json.RawMessage
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return reply{err: err}
	}
	r.status = out.Status
	if out.Error != "" {
		r.err = fmt.Errorf("web could not call: %s", out.Error)
		return r
	}
	var body struct{ Name, Version, Host string }
	json.Unmarshal(out.Body, &body) // an error page is not JSON
	r.name, r.version, r.host = body.Name, body.Version, body.Host
	return r
}

// tally counts replies.
type tally struct {
	mu        sync.Mutex
	requests  int
	failed    int
	firstFail string
	versions  map[string]int
	hosts     map[string]int
	slowest   time.Duration
	began     time.Time
	ended     time.Time
}

func newTally() *tally {
	return &tally{versions: map[string]int{}, hosts: map[string]int{}, began: time.Now()}
}

func (t *tally) add(r reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	t.slowest = max(t.slowest, r.took)
	if r.err != nil || r.status != http.StatusOK {
		t.failed++
		if t.firstFail == "" {
			t.firstFail = fmt.Sprintf("status %d, %v", r.status, r.err)
		}
		return
	}
	t.versions[r.version]++
	t.hosts[r.host]++
}

// total returns the number of requests so far.
func (t *tally) total() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests
}

// share returns the share of successful replies that came from version.
func (t *tally) share(version string) float64 {
	sum := 0
	for _, n := range t.versions {
		sum += n
	}
	return float64(t.versions[version]) / float64(max(sum, 1))
}

func (t *tally) String() string {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(t.versions)) {
		parts = append(parts, fmt.Sprintf("%s %d (%.1f %%)", v, t.versions[v], 100*t.share(v)))
	}
	return strings.Join(parts, ", ")
}

// rate returns the requests per second.
func (t *tally) rate() float64 {
	return float64(t.requests) / max(t.ended.Sub(t.began).Seconds(), 0.001)
}

const callers = 8

// sample sends n requests from a few callers as fast as responses arrive.
func (c *caller) sample(ctx context.Context, n int, path string, headers ...string) *tally {
	t := newTally()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := i; j < n && ctx.Err() == nil; j += callers {
				t.add(c.call(ctx, path, headers...))
			}
		})
	}
	wg.Wait()
	t.ended = time.Now()
	return t
}

// steady sends `rate` requests per second until the returned function is called, which returns the tally. On a busy
// machine it continues until at least half a second's requests are sent. Requests under way are completed and counted.
func (c *caller) steady(ctx context.Context, rate int, path string) func() *tally {
	t := newTally()
	quit := make(chan struct{})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			tick := time.NewTicker(time.Second * callers / time.Duration(rate))
			defer tick.Stop()
			for {
				select {
				case <-quit:
					return
				case <-ctx.Done():
					return
				case <-tick.C:
					t.add(c.call(context.WithoutCancel(ctx), path))
				}
			}
		})
	}
	return sync.OnceValue(func() *tally {
		for ctx.Err() == nil && t.total() < rate/2 {
			pause(ctx, 10*time.Millisecond)
		}
		close(quit)
		wg.Wait()
		t.ended = time.Now()
		return t
	})
}
