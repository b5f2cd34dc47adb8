package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	activeConnections = "downstream_cx_active"
	adminTimeout      = 2 * time.Second
	metricsPath       = "/stats/prometheus"
)

// admin speaks to Envoy's admin port.
type admin struct {
	addr   string
	client *http.Client
}

func newAdmin(addr string) *admin {
	return &admin{addr: addr, client: &http.Client{Timeout: adminTimeout}}
}

func (a *admin) do(ctx context.Context, method, path string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.addr+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return resp.StatusCode, body, err
}

// ready is nil when Envoy is LIVE: it has its configuration and serves.
func (a *admin) ready(ctx context.Context) error {
	code, body, err := a.do(ctx, http.MethodGet, "/ready")
	if err != nil {
		return fmt.Errorf("Envoy does not answer: %w", err)
	}
	if code != http.StatusOK {
		return fmt.Errorf("Envoy is %s", strings.TrimSpace(string(body)))
	}
	return nil
}

// stats are the counters and gauges whose names match.
func (a *admin) stats(ctx context.Context, match string) (map[string]int, error) {
	_, body, err := a.do(ctx, http.MethodGet, "/stats?format=json&filter="+url.QueryEscape(match))
	if err != nil {
		return nil, err
	}
	var out struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int    `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, fmt.Errorf("statistics of Envoy: %w", err)
	}
	all := make(map[string]int, len(out.Stats))
	for _, s := range out.Stats {
		if s.Name != "" {
			all[s.Name] = s.Value
		}
	}
	return all, nil
}

// active counts the connections of all listeners but those that show what Envoy does: whoever reads metrics must not keep
// it alive.
func (a *admin) active(ctx context.Context) (int, error) {
	all, err := a.stats(ctx, `^listener\..*`+activeConnections+`$`)
	n := 0
	for name, v := range all {
		if !strings.HasPrefix(name, "listener.admin.") && !strings.HasPrefix(name, "listener."+metricsName+".") && !strings.Contains(name, ".worker_") {
			n += v
		}
	}
	return n, err
}
