package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
)

func TestSelect(t *testing.T) {
	ids := []proxy.Identity{{Namespace: "a", Name: "p0", Workload: "x"}, {Namespace: "a", Name: "p1", Workload: "y"}, {Namespace: "b", Name: "p2", Workload: "x"}}
	for _, c := range []struct {
		s    Select
		want string
	}{
		{Select{}, "p0 p1 p2"},
		{Select{Namespaces: []string{"a"}}, "p0 p1"},
		{Select{Namespaces: []string{}}, ""}, // of no namespace: nobody
		{Select{Workload: "x"}, "p0 p2"},
		{Select{Namespaces: []string{"a"}, Workload: "x"}, "p0"},
		{Select{Pods: []string{"p1", "p2"}}, "p1 p2"},
		{Select{Not: []string{"p1"}}, "p0 p2"},
		{Select{Share: .01}, "p0"}, // rounded up
		{Select{Share: .34}, "p0 p1"},
		{Select{Share: 1}, "p0 p1 p2"},
	} {
		var got []string
		match := c.s.matcher(len(ids))
		for i, id := range ids {
			if match(i, id) {
				got = append(got, id.Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v picks %v, want %s", c.s, got, c.want)
		}
		raw, err := json.Marshal(c.s)
		var back Select
		if err == nil {
			err = json.Unmarshal(raw, &back)
		}
		if err != nil || len(c.s.Namespaces) > 0 && !slices.Equal(back.Namespaces, c.s.Namespaces) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// A Select of no namespace, encoded for a worker, does not become one of all namespaces.
func TestSelectSurvivesItsWay(t *testing.T) {
	raw, err := json.Marshal(Watch{Type: xds.Route, Name: "80", Among: Select{Namespaces: []string{}}})
	if err != nil {
		t.Fatal(err)
	}
	var back Watch
	if err := json.Unmarshal(raw, &back); err != nil || back.Among.Namespaces == nil {
		t.Errorf("%s comes back as %+v, %v", raw, back, err)
	}
}

// Every scenario and suite can be found, names are unique, and every target can be evaluated.
func TestTheTableIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if seen[s.Name] || s.run == nil || s.Proxies < 1 || s.Title == "" {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
		if _, err := Find(s.Name); err != nil {
			t.Error(err)
		}
	}
	for name := range Suites {
		if found, err := Find(name); err != nil || len(found) != len(Suites[name]) {
			t.Errorf("suite %s: %d scenarios, %v", name, len(found), err)
		}
	}
	if _, err := Find("nonesuch"); err == nil || !strings.Contains(err.Error(), "join") {
		t.Errorf("an unknown scenario: %v", err)
	}
}

// The schedule does not wait for slow calls: later calls receive their scheduled times.
func TestScheduleIsAnOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{ctx: t.Context()}
		began := time.Now()
		var at, called []time.Duration
		err := s.schedule(100*time.Millisecond, time.Second, func(i int, when time.Time) error {
			at, called = append(at, when.Sub(began)), append(called, time.Since(began))
			if i == 2 {
				time.Sleep(350 * time.Millisecond) // a server that holds the harness up
			}
			return nil
		})
		if err != nil || len(at) != 10 {
			t.Fatal(len(at), err)
		}
		for i := range at {
			if at[i] != time.Duration(i)*100*time.Millisecond {
				t.Errorf("call %d was told %v", i, at[i])
			}
		}
		if called[3] != 550*time.Millisecond || called[5] != 550*time.Millisecond || called[9] != 900*time.Millisecond {
			t.Errorf("called at %v", called)
		}
		stop := errors.New("stop")
		if err := s.schedule(time.Second, time.Hour, func(i int, _ time.Time) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("an edit that failed: %v", err)
		}
	})
}

// The commit time of an edit, from the page of commits, is that of the first commit after it.
func TestCommitsPage(t *testing.T) {
	edit := time.Now()
	page := []commit{{Revision: 1, Committed: edit.Add(-time.Second)}, {Revision: 2, Committed: edit.Add(30 * time.Millisecond)}, {Revision: 3, Committed: edit.Add(time.Second)}}
	have := true
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != commitsPage || !have {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	defer web.Close()
	s := &Server{Debug: strings.TrimPrefix(web.URL, "http://")}
	if at, ok := s.committed(t.Context(), edit); !ok || !at.Equal(page[1].Committed) {
		t.Errorf("committed %v after the edit, %t; want 30ms", at.Sub(edit), ok)
	}
	if _, ok := s.committed(t.Context(), edit.Add(time.Minute)); ok {
		t.Error("an edit after all commits was committed")
	}
	if have = false; !errors.Is(s.page(t.Context(), commitsPage, nil), errNoPage) {
		t.Error("a page that is not there")
	}
	for _, none := range []*Server{s, {}, nil} {
		if _, ok := none.committed(t.Context(), edit); ok {
			t.Error("a server without the page told a time")
		}
	}
}

// Edits are reported by medians and the slowest edit, CPU per edit, and responses per proxy.
func TestEffects(t *testing.T) {
	f := &effects{}
	for i, last := range []time.Duration{10, 30, 20} {
		ack := &gauge.Histogram{}
		ack.Record(last * time.Millisecond)
		ack.Record(time.Millisecond)
		f.add(proxy.Outcome{Expected: 4, Acked: 4, Ack: ack, Receive: ack}, 5*time.Millisecond, time.Duration(i+1)*10*time.Millisecond, proxy.TypeStats{Responses: 4, Resources: 6, BytesIn: 2000}, 2)
	}
	s := &stage{result: &reportScenario{}, Options: Options{Scale: 1}, measured: []*Server{{PID: 1}}, scenario: Scenario{Targets: map[string]Target{rowLast: {Value: 19}, rowEditCPU: {Value: 20}}}}
	f.report(s, "x")
	want := map[string]float64{rowLast: 20, rowP99: 30, rowEdit: 25, rowEditCPU: 20, rowPushes: 2, rowPerProxy + " and edit": 1}
	for _, row := range s.result.Rows {
		if row.Value != want[row.Name] {
			t.Errorf("%s is %g, want %g", row.Name, row.Value, want[row.Name])
		}
		delete(want, row.Name)
		switch row.Name {
		case rowLast:
			if row.Outcome != "miss" {
				t.Errorf("%s: %s", row.Name, row.Outcome)
			}
		case rowEditCPU:
			if row.Outcome != "pass" {
				t.Errorf("%s: %s", row.Name, row.Outcome)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no rows %v", want)
	}
}

// Without known processes there are no figures of their cost, and in particular no zeros.
func TestUnknownProcessesHaveNoFigures(t *testing.T) {
	s := &stage{result: &reportScenario{}, measured: []*Server{{Addr: "127.0.0.1:1"}}, Options: Options{Scale: 1}, scenario: Scenario{Targets: map[string]Target{rowCPU: {Value: 1}}}}
	s.cost(rowCPU, "ms", 0)
	if len(s.result.Rows) > 0 || len(s.result.Notes) != 1 {
		t.Errorf("%+v", s.result)
	}
	o := Options{Scale: .02, WorkDir: t.TempDir(), ConfigDir: t.TempDir(), Servers: []*Server{{Name: "gone", Addr: "127.0.0.1:1", PID: 1 << 30}}}
	if r := Run(t.Context(), All()[0], o); !strings.Contains(r.Failed, "gone") || len(r.Rows) > 0 {
		t.Errorf("a process that is not there: %q, %v", r.Failed, r.Rows)
	}
}

// Results with another number of proxies than the table's are not compared with the targets.
func TestOutcomesAreForTheTablesSizes(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Scale: 1}, "pass"}, {Options{Scale: 1, Proxies: 100}, "pass"}, {Options{Scale: 1, Proxies: 99}, "none"}, {Options{Scale: .5}, "none"},
	} {
		s := &stage{Options: c.o, result: &reportScenario{}, scenario: Scenario{Proxies: 100, Targets: map[string]Target{"x": {Value: 1}}}}
		s.row("x", "", 1)
		if got := string(s.result.Rows[0].Outcome); got != c.want {
			t.Errorf("%+v: %s, want %s", c.o, got, c.want)
		}
	}
}

// A worker answers every call by its id, refuses invalid calls, and ends with its input.
func TestWorkerProtocol(t *testing.T) {
	in, out := io.Pipe()
	var answers bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- Work(t.Context(), in, &answers) }()
	for _, line := range []string{
		`{"id":1,"op":"stats"}`,
		`{"id":2,"op":"make","spec":{"addrs":[]}}`,
		`{"id":3,"op":"make","spec":{"addrs":["127.0.0.1:1"]}}`,
		`{"id":4,"op":"stats"}`,
		`{"id":5,"op":"outcome","probe":9}`,
		`{"id":6,"op":"dance"}`,
		`{"id":7,"op":"watch","watch":[{"type":0,"name":"c"}]}`,
		`{"id":8,"op":"outcome","probe":1}`,
		`{"id":9,"op":"outcome","probe":1}`,
	} {
		if _, err := io.WriteString(out, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	out.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := map[uint64]string{1: "before make", 2: "no address", 3: "", 4: "", 5: "unknown probe", 6: "unknown", 7: "", 8: "", 9: "unknown probe"}
	for d := json.NewDecoder(&answers); d.More(); {
		var a answer
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		if text, ok := want[a.ID]; !ok || (text == "") != (a.Error == "") || !strings.Contains(a.Error, text) {
			t.Errorf("call %d: %q, want %q", a.ID, a.Error, text)
		}
		if a.ID == 4 && a.Stats == nil || a.ID == 8 && a.Outcome == nil {
			t.Errorf("call %d has no result", a.ID)
		}
		delete(want, a.ID)
	}
	if len(want) > 0 {
		t.Errorf("no answers to %v", want)
	}
	if err := Work(t.Context(), strings.NewReader("{"), io.Discard); err == nil {
		t.Error("half a call was taken")
	}
}

// The caller's deadline applies in the worker: a wait for proxies that do not arrive ends.
func TestWorkerKeepsDeadlines(t *testing.T) {
	w := &worker{probes: map[uint64]Probe{}}
	var a answer
	if err := w.do(t.Context(), call{Op: "make", Spec: &Spec{Addrs: []string{"127.0.0.1:1"}}}, &a); err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.do(t.Context(), call{Op: "add", Identities: []proxy.Identity{{Namespace: "a", Name: "b", IP: "10.0.0.1"}}}, &a); err != nil {
		t.Fatal(err)
	}
	if err := w.do(t.Context(), call{Op: "join", Deadline: time.Now().Add(20 * time.Millisecond)}, &a); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a proxy that cannot connect: %v", err)
	}
}

// Proxies' certificates contain their identities, verify against the root, and are made once for each identity.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	if err := makeCA(dir); err != nil {
		t.Fatal(err)
	}
	of, err := TLS{Dir: dir}.client()
	if err != nil {
		t.Fatal(err)
	}
	a, err := of(proxy.Identity{Namespace: "n", Name: "p1", ServiceAccount: "s"})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := of(proxy.Identity{Namespace: "n", Name: "p2", ServiceAccount: "s"})
	c, _ := of(proxy.Identity{Namespace: "n", Name: "p2", ServiceAccount: "other"})
	if a != b || a == c {
		t.Error("configurations are not by identity")
	}
	shakeHands(t, dir, a, "spiffe://cluster.local/ns/n/sa/s")
	if of, err := (TLS{}).client(); of != nil || err != nil {
		t.Error("plain text has a TLS configuration", err)
	}
	if _, err := (TLS{Roots: "nonesuch"}).client(); err == nil {
		t.Error("roots that are not there were read")
	}
}
