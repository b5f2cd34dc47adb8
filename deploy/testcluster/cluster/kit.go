package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// ForTest is a cluster until the test ends. The test is skipped where this machine allows none (ErrImpossible), and fails where the tools are
// not built.
func ForTest(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), o)
	if errors.Is(err, ErrImpossible) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the cluster's last lines:\n%s", c.Log())
		}
		c.Close()
	})
	return c
}

// MustKubectl is Kubectl for a test, which fails where kubectl does.
func (c *Cluster) MustKubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := c.Kubectl(ctx, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Await calls f until it says nothing, for a minute at most; the test fails with what it said last.
func Await(t testing.TB, what string, f func() string) {
	t.Helper()
	AwaitFor(t, time.Minute, what, f)
}

// AwaitFor is Await with another limit.
func AwaitFor(t testing.TB, atMost time.Duration, what string, f func() string) {
	t.Helper()
	pause := 100 * time.Millisecond
	for until := time.Now().Add(atMost); ; time.Sleep(pause) {
		pause = min(pause*5/4, time.Second) // most ask kubectl, which takes a tenth of a second of a processor each time
		missing := f()
		if missing == "" {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s: %s", what, strings.TrimSpace(missing))
		}
	}
}
