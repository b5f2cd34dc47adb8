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
	activeConnections   = "downstream_cx_active"
	acceptedConnections = "downstream_cx_total"
	adminTimeout        = 2 * time.Second
	metricsPath         = "/stats/prometheus"
)

// admin is a client of Envoy's admin port.
type admin struct {
	addr   string
	client *http.Client
}

func newAdmin(addr string) *admin {
	return &admin{addr: addr, client: &http.Client{Timeout: adminTimeout}}
}

// do sends one request and returns the status code and the body. It reads at most 8 MiB of the body. The time limit is
// adminTimeout. Errors: an invalid path, a failed connection, or a failed read of the body. A status code is never an
// error.
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

// ready returns nil when Envoy reports LIVE on /ready, which means that it serves its configuration. The error
// contains Envoy's state, or the reason why the admin port does not answer.
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

// stats returns the counters and gauges whose names match the regular expression, by name. Errors: the admin port does
// not answer, or its answer cannot be decoded.
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

// active counts the open connections of all listeners except the admin and metrics listeners. The connections of these
// two do not count, because a client that scrapes metrics must not delay the end of Envoy. The error is that of stats.
func (a *admin) active(ctx context.Context) (int, error) {
	n, _, err := a.connections(ctx)
	return n, err
}

// connections counts the open connections, and all connections accepted since Envoy's start, of the listeners that
// active counts. The error is that of stats.
func (a *admin) connections(ctx context.Context) (active, accepted int, err error) {
	all, err := a.stats(ctx, `^listener\..*(`+activeConnections+`|`+acceptedConnections+`)$`)
	for name, v := range all {
		switch {
		case strings.HasPrefix(name, "listener.admin."), strings.HasPrefix(name, "listener."+metricsName+"."),
			strings.Contains(name, ".worker_"):
		case strings.HasSuffix(name, activeConnections):
			active += v
		default:
			accepted += v
		}
	}
	return active, accepted, err
}
