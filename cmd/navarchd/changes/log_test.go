package changes

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// changing is a replica with its initial state, and its log.
type changing struct {
	*Log
	t       *testing.T
	out     bytes.Buffer
	now     *mirror.Snapshot
	waiting atomic.Bool
}

func startChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{t: t}
	c.Log = NewLog(slog.New(slog.NewTextHandler(&c.out, nil)))
	c.Serves(&pool.Pool{}, c.waiting.Load)
	go func() { _ = c.Run(t.Context()) }()
	c.now = mirror.Empty()
	c.edit(1, "first")
	if got := c.said(); !strings.Contains(got, "configuration is complete") || !strings.Contains(got, `objects="Sidecar 1"`) {
		t.Errorf("at first: %s", got)
	}
	return c
}

// edit simulates a change of some Sidecars that is committed now.
func (c *changing) edit(revision int64, names ...string) {
	var puts []model.Record
	for _, name := range names {
		r, err := model.New(model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: name}, revision, &networkingv1.Sidecar{})
		if err != nil {
			c.t.Fatal(err)
		}
		puts = append(puts, r)
	}
	change := c.now.Apply(revision, puts, nil)
	change.Committed, c.now = time.Now(), change.New
	c.Published(change)
}

func (c *changing) said() string {
	synctest.Wait()
	defer c.out.Reset()
	return c.out.String()
}

// A change is logged as one line: its event, its objects, the affected proxies, and the time to the last
// acknowledgement.
func TestOneChangeIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startChanging(t)
		event := time.Now()
		time.Sleep(30 * time.Millisecond)
		c.Wrote(7, event, kv.Batch{})
		c.edit(7, "a", "b", "c", "d", "e", "f")
		time.Sleep(time.Second)
		if got := c.said(); got != "" {
			t.Errorf("before it was planned: %s", got)
		}
		c.Planned(7, plan.Slow, 2)
		c.Acknowledged(xds.Cluster, "old", 6) // of a proxy that lags
		c.Acknowledged(xds.Cluster, "p1", 7)
		time.Sleep(100 * time.Millisecond)
		c.Acknowledged(xds.Route, "p1", 7)
		c.Acknowledged(xds.Route, "p2", 7)
		time.Sleep(time.Second)
		got := c.said()
		for _, want := range []string{`msg="configuration applied"`, "revision=7", "changes=1", "proxies=2", "acknowledged=2", `responses="CDS 1, RDS 2"`, "took=1.13s",
			`objects="Sidecar shop/a, Sidecar shop/b, Sidecar shop/c, Sidecar shop/d and 2 more"`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
		}
		if strings.Count(got, "\n") != 1 {
			t.Errorf("not one line:\n%s", got)
		}
		c.edit(8, "a")
		c.Planned(8, plan.Slow, 1)
		c.waiting.Store(true) // the proxy does not get its turn
		time.Sleep(10 * time.Second)
		if got := c.said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "is being applied") {
			t.Errorf("one that does not end: %s", got)
		}
	})
}

// The change of a new Pod does not wait for a plan of the configuration.
func TestWorkloadsAreNoConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startChanging(t)
		pod, err := model.New(model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: "web-1"}, 1, &model.WorkloadSpec{Endpoint: &model.Endpoint{Address: "10.1.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		change := c.now.Apply(7, []model.Record{pod}, nil)
		change.Committed = time.Now()
		c.Published(change)
		c.Planned(7, plan.Fast, 0)
		time.Sleep(time.Second)
		if got := c.said(); !strings.Contains(got, "configuration applied") || !strings.Contains(got, "Workload shop/web-1") {
			t.Errorf("after the plan of endpoints: %q", got)
		}
	})
}

// Continuous changes are logged as a limited number of lines, which together count all of them. This applies if none is
// done before the next one comes, and if each is.
func TestChangesWithoutEnd(t *testing.T) {
	for _, rate := range []int{100, 4} {
		synctest.Test(t, func(t *testing.T) { withoutEnd(t, rate) })
	}
}

func withoutEnd(t *testing.T, rate int) {
	const seconds = 60
	c := startChanging(t)
	for i := range int64(seconds * rate) {
		c.edit(i+2, fmt.Sprint("s", i%3000))
		c.Planned(i+2, plan.Slow, 1)
		c.Acknowledged(xds.Cluster, "p", i+2)
		time.Sleep(time.Second / time.Duration(rate))
	}
	time.Sleep(10 * time.Second)
	got, sum := c.said(), 0
	for line := range strings.Lines(got) {
		var n int
		if _, after, ok := strings.Cut(line, "changes="); ok {
			_, _ = fmt.Sscan(after, &n)
		}
		sum += n
		if len(line) > 1000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	if lines := strings.Count(got, "\n"); lines > 2*(seconds+1) || lines < 5 || sum != seconds*rate {
		t.Errorf("at %d a second: %d lines for %d s, of %d changes, want %d", rate, lines, seconds, sum, seconds*rate)
	}
}
