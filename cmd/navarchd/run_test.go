package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// The environment's settings of the fan-out take effect.
func TestPushThrottle(t *testing.T) {
	etcd := kvtest.Start(t)
	for value, want := range map[string]int{"7": 7, "": 100} {
		c := &config{roles: []string{"xds"}, trustDomain: "cluster.local", env: environment{podName: "a"}}
		if err := c.env.read(func(name string) (string, bool) { return value, name == "PILOT_PUSH_THROTTLE" }); err != nil {
			t.Fatal(err)
		}
		if got := leastReplica(t, c, etcd.Connect()).server.Budget().Streams; got != want {
			t.Errorf("PILOT_PUSH_THROTTLE=%s: %d streams are sent to at once, want %d", value, got, want)
		}
	}
}

// leastReplica returns a role xds without its optional parts: a key encryption key, Kubernetes.
func leastReplica(t *testing.T, c *config, store *kv.Store) *replica {
	t.Helper()
	telemetry := &telemetry{changes: changes.NewLog(quiet)}
	records, err := newMirror(c, store, nil, quiet, telemetry)
	if err != nil {
		t.Fatal(err)
	}
	known, err := callers.New(c.callersConfig(records.Current, clusterFacts{}, nil, quiet))
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReplica(replicaConfig{config: c, log: quiet, store: store, mirror: records, callers: known, telemetry: telemetry,
		kills: memory.OpenKills("", quiet)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A stop takes its time, up to --shutdown-duration; earlier errors are returned unchanged.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		defer close(release)
		start := time.Now()
		time.AfterFunc(time.Hour, cancel)
		err := within(ctx, 7*time.Second, func() error { <-release; return nil })
		if err == nil || !strings.Contains(err.Error(), "--shutdown-duration") || time.Since(start) != time.Hour+7*time.Second {
			t.Errorf("a stop that hangs: %v after %v", err, time.Since(start))
		}
		if err := within(ctx, 7*time.Second, func() error { time.Sleep(6 * time.Second); return nil }); err != nil {
			t.Errorf("a stop in time: %v", err)
		}
		broken := errors.New("broken")
		if err := within(t.Context(), 0, func() error { return broken }); !errors.Is(err, broken) {
			t.Errorf("a loop that fails: %v", err)
		}
	})
}
