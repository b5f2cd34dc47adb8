package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The hooks that injection sets for the proxy: wait returns once the agent is ready, drain requests a drain, and both
// report errors.
func TestHooks(t *testing.T) {
	var asked, drained atomic.Int32
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz/ready" && asked.Add(1) < 3:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		case r.URL.Path == "/drain" && r.Method == http.MethodPost:
			drained.Add(1)
		case r.URL.Path != "/healthz/ready":
			http.NotFound(w, r)
		}
	}))
	defer agent.Close()
	address := strings.TrimPrefix(agent.URL, "http://")
	_, port, _ := strings.Cut(address, ":")
	run := func(args ...string) error {
		cmd := command()
		cmd.SetArgs(args)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		return cmd.ExecuteContext(t.Context())
	}
	if err := run("wait", "--status-addr", address); err != nil || asked.Load() != 3 {
		t.Errorf("wait: %v, asked %d times", err, asked.Load())
	}
	if err := run("drain", "--stats-port", port); err != nil || drained.Load() != 1 {
		t.Errorf("drain: %v, drained %d times", err, drained.Load())
	}
	if err := run("drain", "--stats-port", "0"); err != nil || drained.Load() != 1 {
		t.Errorf("drain of no port: %v", err)
	}
	asked.Store(-1 << 20)
	if err := run("wait", "--status-addr", address, "--timeout", "1ms"); err == nil || !strings.Contains(err.Error(), "the agent is not ready") {
		t.Errorf("wait for an agent that is never ready: %v", err)
	}
}
