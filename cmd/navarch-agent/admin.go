package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

const (
	activeConnections = "downstream_cx_active"
	adminTimeout      = 2 * time.Second
	drainPoll         = 250 * time.Millisecond
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

// active counts the connections of all listeners but the admin's own.
func (a *admin) active(ctx context.Context) (int, error) {
	_, body, err := a.do(ctx, http.MethodGet, `/stats?format=json&filter=^listener\..*`+activeConnections+`$`)
	if err != nil {
		return 0, err
	}
	var out struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int    `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return 0, fmt.Errorf("statistics of Envoy: %w", err)
	}
	n := 0
	for _, s := range out.Stats {
		if !strings.HasPrefix(s.Name, "listener.admin.") && !strings.Contains(s.Name, ".worker_") {
			n += s.Value
		}
	}
	return n, nil
}

// drain asks the inbound listeners to send their clients away while they still serve, and returns when no connection is
// left, or after limit. Outbound listeners stay: the application may need them for its own goodbye.
func (a *admin) drain(ctx context.Context, limit time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, _, err := a.do(ctx, http.MethodPost, "/drain_listeners?inboundonly&graceful"); err != nil {
		log.Warn("cannot drain Envoy, it is stopped at once", "error", err)
		return
	}
	log.Info("draining", "at most", limit)
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	// A moment of grace first: callers learn only after a while that this endpoint is going, and still come.
	for quiet := 0; quiet < 2; {
		select {
		case <-ctx.Done():
			log.Info("drained for the whole time allowed")
			return
		case <-tick.C:
		}
		n, err := a.active(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.Warn("cannot see Envoy's connections, it is stopped", "error", err)
			return
		case n == 0:
			quiet++
		default:
			quiet = 0
		}
	}
	log.Info("drained, no connection is left")
}
