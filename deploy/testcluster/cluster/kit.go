package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// ForTest returns a cluster that runs until the test ends. It skips the test on a machine that cannot run one
// (ErrImpossible), and fails it if the tools are not built.
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

// MustKubectl works like Kubectl, but fails the test if kubectl fails.
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

// Await calls f until it returns an empty text, for three minutes at most; then it fails the test with f's last text.
func Await(t testing.TB, what string, f func() string) {
	t.Helper()
	AwaitFor(t, 3*time.Minute, what, f)
}

// AwaitFor works like Await, with another time limit.
func AwaitFor(t testing.TB, atMost time.Duration, what string, f func() string) {
	t.Helper()
	pause := 100 * time.Millisecond
	for until := time.Now().Add(atMost); ; time.Sleep(pause) {
		pause = min(pause*5/4, time.Second) // most run kubectl, which costs a tenth of a second of CPU each time
		missing := f()
		if missing == "" {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s: %s", what, strings.TrimSpace(missing))
		}
	}
}
