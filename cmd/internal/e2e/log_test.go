package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	sim "navarch.io/navarch/loadtest/proxy"
)

// lines returns the lines of the log that contain all the words.
func (d *daemon) lines(words ...string) (all []string) {
	for line := range strings.Lines(d.log.String()) {
		found := true
		for _, word := range words {
			found = found && strings.Contains(line, word)
		}
		if found {
			all = append(all, line)
		}
	}
	return all
}

// said waits for that many lines.
func (d *daemon) said(t *testing.T, n int, words ...string) {
	t.Helper()
	eventually(t, patience, func() error {
		if got := len(d.lines(words...)); got != n {
			return fmt.Errorf("%d lines with %q, want %d, in\n%s", got, words, n, d.log)
		}
		return nil
	})
}

// The log of a process is written for its operator: first its identity and addresses, then the files that it read, its
// readiness, one line for a change with its effect, one for a problem and one for its end, and no alarms when it stops.
func TestLogIsAnOperators(t *testing.T) {
	parallel(t)
	dir, data := folder(t), t.TempDir()
	d := startProgram(t, navarchd(t), []string{"PILOT_HTTP10=1", "PILOT_PUSH_THROTTLE=100"}, append(unlevelled, "--config-dir", dir, "--data-dir", data)...)
	eventually(t, patience, d.ready)
	d.said(t, 1, "msg=ready took=")
	if first, _, _ := strings.Cut(d.log.String(), "\n"); !strings.Contains(first, `msg="navarchd starts" version=`) || !strings.Contains(first, `roles=ingest,xds,ca mesh=default store="embedded etcd in `+data) {
		t.Errorf("the first line is %s", first)
	}
	for _, want := range []string{`listener="xds, plain text" address=` + d.grpc, `listener="xds and ca, TLS" address=` + d.secure, "listener=http address=" + d.http,
		"listener=monitoring address=" + d.monitoring, `msg="configuration folder read" name=` + dir + ` objects="EndpointSlice 1, Service 2, VirtualService 1"`,
		`msg="configuration is complete"`, `level=WARN msg="an environment variable of istiod is set but has no effect on navarchd`, "name=PILOT_HTTP10"} {
		if got := d.lines(want); len(got) != 1 {
			t.Errorf("%d lines with %s", len(got), want)
		}
	}
	builtIn(t, d, data).fleet(3, sim.Config{}, d)
	eventually(t, patience, func() error { return d.metric("navarch_proxies 3") })
	write(t, dir, "routes.yaml", routes(2))
	d.said(t, 1, `msg="configuration applied"`)
	change := d.lines(`msg="configuration applied"`)[0]
	if !regexp.MustCompile(`revision=\d+ changes=1 objects="VirtualService shop/web" built="route 1, virtual host 1" proxies=3 acknowledged=3 responses="RDS 3" took=\d`).MatchString(change) {
		t.Errorf("the change: %s", change)
	}
	write(t, dir, "bad.yaml", strings.ReplaceAll(routes(3), "web", "db")+"    retries: {attempts: -1}\n")
	d.said(t, 1, "level=WARN", `object="VirtualService shop/db"`, "field=", "location=bad.yaml")
	write(t, dir, "bad.yaml", strings.ReplaceAll(routes(3), "web", "db"))
	d.said(t, 1, "level=INFO", "is over", `object="VirtualService shop/db"`, "location=bad.yaml")
	d.stop(t)
	known := regexp.MustCompile("fdatasync|slow disk|name=PILOT_HTTP10|has no ready endpoint") // the first of a machine that does other things, and an operator has to know
	alarming := slices.DeleteFunc(append(d.lines("level=WARN"), d.lines("level=ERROR")...), known.MatchString)
	if len(alarming) != 1 || !strings.Contains(alarming[0], "VirtualService shop/db") {
		t.Errorf("warnings and errors, want that of the problem: %s", alarming)
	}
	if last := d.lines(""); !strings.Contains(last[len(last)-1], "navarchd stopped") || len(d.lines("navarchd is asked to stop")) != 1 {
		t.Errorf("the end: %s", last[len(last)-1])
	}
}
