package watchdog

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"navarch.io/navarch/store/obs"
)

// A call that takes longer than the limit is logged as an error, once, while it runs. Shorter calls, and calls that
// panic, are not, however many follow each other.
func TestCall(t *testing.T) {
	for name, c := range map[string]struct {
		calls []time.Duration
		fails bool
		lines int
	}{
		"short":      {[]time.Duration{0, Limit - time.Second, Limit - time.Second, Limit - time.Second}, false, 0},
		"long":       {[]time.Duration{0, Limit + time.Second, 0}, false, 1},
		"very long":  {[]time.Duration{time.Hour}, false, 1},
		"both":       {[]time.Duration{Limit + time.Second, 0, Limit + time.Second}, false, 2},
		"panicking":  {[]time.Duration{0, time.Second}, true, 0},
		"none, ever": {nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				w := New(slog.New(slog.NewTextHandler(&out, nil)), "loop: hook")
				w.test = false
				before := counted(t, "loop: hook")
				for _, takes := range c.calls {
					func() {
						defer func() { _ = recover() }() // for the intended panic
						w.Call(func() {
							time.Sleep(takes)
							if c.fails {
								panic("on purpose")
							}
						})
					}()
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := strings.Count(out.String(), `name="loop: hook"`); n != c.lines || n != strings.Count(out.String(), "level=ERROR") {
					t.Errorf("%d lines, want %d: %s", n, c.lines, &out)
				}
				if n := counted(t, "loop: hook") - before; n != c.lines {
					t.Errorf("counted %d, want %d", n, c.lines)
				}
			})
		})
	}
}

func counted(t *testing.T, call string) int {
	t.Helper()
	var m dto.Metric
	if err := obs.BlockedCalls.WithLabelValues(call).Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetCounter().GetValue())
}

// isBlocked has this test binary make a call that blocks.
const isBlocked = "WATCHDOG_TEST_BLOCKED"

// In a test binary a call that blocks ends it, with the name of the call.
func TestEndsTestBinary(t *testing.T) {
	if os.Getenv(isBlocked) != "" {
		synctest.Test(t, func(*testing.T) { New(nil, "loop: hook").Call(func() { time.Sleep(time.Hour) }) })
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^TestEndsTestBinary$")
	c.Env = append(os.Environ(), isBlocked+"=1")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "loop: hook must not block") {
		t.Errorf("%v: %s", err, out)
	}
}

func BenchmarkCall(b *testing.B) {
	w, n := New(nil, "loop: hook"), 0
	b.ReportAllocs()
	for b.Loop() {
		w.Call(func() { n++ })
	}
}
