package scene

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/proxy"
)

// small returns a stage with a small world on disk and without servers.
func small(t *testing.T, f Fleet) *stage {
	t.Helper()
	settings, err := mesh.Load("tiny")
	if err != nil {
		t.Fatal(err)
	}
	world, err := mesh.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := world.Write(dir); err != nil {
		t.Fatal(err)
	}
	return &stage{ctx: t.Context(), Options: Options{Scale: .01, Proxies: 8, Repeats: 1}, result: &reportScenario{}, mesh: world, dir: dir,
		churn: mesh.NewChurn(world, dir), began: time.Now(), fleet: f, make: func(Spec) (Fleet, error) { return f, nil }}
}

// ACKs that did not come are slow ones: without any ACK the percentile is not zero.
func TestMissingAcksAreSlow(t *testing.T) {
	for _, c := range []struct {
		acks, missing int
		want          time.Duration
	}{{0, 100, ackPatience}, {99, 1, time.Millisecond}, {98, 2, ackPatience}, {100, 0, time.Millisecond}} {
		f := &endpointEdits{missing: c.missing}
		for range c.acks {
			f.acks.Record(time.Millisecond)
		}
		if got := f.p99(); (got == ackPatience) != (c.want == ackPatience) || got > 2*c.want {
			t.Errorf("%d ACKs, %d missing: %v, want %v", c.acks, c.missing, got, c.want)
		}
	}
}

// The noisy side contains the services of the largest namespace, the quiet side all others; each service is on one
// side.
func TestSides(t *testing.T) {
	s := small(t, nil)
	noisy, quiet := s.sides()
	of := map[string]int{}
	for k := range s.mesh.Settings.Services {
		_, namespace := s.mesh.Host(k)
		of[namespace]++
	}
	if len(noisy)+len(quiet) != s.mesh.Settings.Services || len(noisy) == 0 || len(quiet) == 0 {
		t.Fatalf("%d and %d of %d services", len(noisy), len(quiet), s.mesh.Settings.Services)
	}
	_, busy := s.mesh.Host(noisy[0])
	if of[busy] != len(noisy) {
		t.Errorf("%d services are noisy, %s has %d", len(noisy), busy, of[busy])
	}
	for namespace, n := range of {
		if n > len(noisy) {
			t.Errorf("%s has %d services, the noisy one %d", namespace, n, len(noisy))
		}
	}
	for _, k := range quiet {
		if _, namespace := s.mesh.Host(k); namespace == busy {
			t.Errorf("service %d of %s is quiet", k, busy)
		}
	}
}

// The noise is 1,000 edits a second, of routes, rules and endpoints in turn, all in one namespace.
func TestNoise(t *testing.T) {
	s := small(t, nil)
	noisy, _ := s.sides()
	_, busy := s.mesh.Host(noisy[0])
	n := &noise{stage: s, churn: s.churn, services: noisy}
	kinds := map[string]int{}
	for i := range 3 * len(noisy) {
		e := n.next(i)
		for _, x := range e.Expect {
			kinds[x.Type.String()]++
			for _, name := range x.Names {
				if x.Type.String() == "EDS" && !strings.Contains(name, "."+busy+".") {
					t.Errorf("%s, of another namespace than %s", name, busy)
				}
			}
		}
		if _, err := e.Apply(); err != nil {
			t.Fatal(err)
		}
	}
	if kinds["RDS"] < len(noisy) || kinds["EDS"] < len(noisy) {
		t.Errorf("edits of %v", kinds)
	}
	synctest.Test(t, func(t *testing.T) {
		n := &noise{stage: s, churn: mesh.NewChurn(s.mesh, s.dir), services: noisy}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		n.run(ctx)
		if n.failed != nil || n.edits < 1900 || n.edits > 2000 {
			t.Errorf("%d edits in two seconds, %v", n.edits, n.failed)
		}
	})
}

// Each object is counted once: only objects of commits after the newest known commit.
func TestObjectsSince(t *testing.T) {
	page := []commit{{Revision: 5, Puts: 3}, {Revision: 6, Puts: 2, Deletes: 1}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(page) }))
	defer web.Close()
	s := &stage{ctx: t.Context(), writer: &Server{Debug: strings.TrimPrefix(web.URL, "http://")}}
	n := &noise{stage: s, written: 5}
	n.count()
	n.count()
	page = append(page, commit{Revision: 9, Puts: 4})
	n.count()
	if n.objects != 7 || n.written != 9 {
		t.Errorf("%d objects up to revision %d, want 7 up to 9", n.objects, n.written)
	}
	for _, none := range []*Server{nil, {}} {
		s.writer = none
		if at, objects := s.objectsSince(4); at != 4 || objects != 0 {
			t.Errorf("no page: revision %d, %d objects", at, objects)
		}
	}
}

// The latency of an endpoint starts at the commit that wrote its own record, not at the first commit after the edit.
func TestEndpointEdits(t *testing.T) {
	edited := time.Now()
	own := commit{Revision: 7, Event: edited.Add(10 * time.Millisecond), Committed: edited.Add(50 * time.Millisecond)}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := []commit{{Revision: 6, Event: edited, Committed: edited.Add(time.Millisecond)}, own}
		if r.URL.Query().Get("record") == "Service/a/b" {
			all = []commit{own}
		}
		_ = json.NewEncoder(w).Encode(all)
	}))
	defer web.Close()
	ack := &gauge.Histogram{}
	ack.Record(3 * time.Millisecond)
	f := &scripted{outcome: func(n int) (proxy.Outcome, error) {
		if n == 1 {
			return proxy.Outcome{}, errors.New("a worker is gone")
		}
		return proxy.Outcome{Expected: 3, Acked: 2, Missing: []string{"p7"}, Ack: ack}, nil
	}}
	s := &stage{ctx: t.Context(), result: &reportScenario{}, writer: &Server{Debug: strings.TrimPrefix(web.URL, "http://")}}
	all := &endpointEdits{}
	s.acknowledged(all, mesh.Edit{What: "endpoint of b", Record: "Service/a/b"}, f, edited)
	near := func(h *gauge.Histogram, want time.Duration) bool {
		return h.Count() == 1 && h.Max() >= want && h.Max() < want+want/50
	}
	if all.count != 1 || all.missing != 1 || !near(&all.acks, 3*time.Millisecond) || !near(&all.waited, 40*time.Millisecond) || !near(&all.toCommit, 50*time.Millisecond) {
		t.Errorf("%d edits, %d missing; ACKs %v, in the ingester %v, to the commit %v", all.count, all.missing, all.acks.Max(), all.waited.Max(), all.toCommit.Max())
	}
	if notes := strings.Join(s.result.Notes, ""); !strings.Contains(notes, "2 of 3 ACKs came, missing [p7]") {
		t.Errorf("the result says %q", notes)
	}
	if s.acknowledged(all, mesh.Edit{What: "endpoint of c"}, f, edited); all.failed == nil || !strings.Contains(all.failed.Error(), "endpoint of c: a worker is gone") || all.count != 1 {
		t.Errorf("%v, %d edits", all.failed, all.count)
	}
}

// The scenario reports edits of endpoints alone and with the noise, the difference, and whatever was missed in either.
func TestNeighbourReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const alone = 10 // edits of one part: 2 s at this scale
		f := &scripted{began: time.Now(), stats: func(time.Duration) (proxy.Stats, error) {
			return proxy.Stats{Proxies: 8, Joined: 8, Types: traffic(7, 9)}, nil
		}, outcome: func(n int) (proxy.Outcome, error) {
			ack := &gauge.Histogram{}
			ack.Record(10 * time.Millisecond)
			if n >= alone {
				ack = &gauge.Histogram{}
				ack.Record(30 * time.Millisecond)
			}
			if n == alone-1 || n == alone {
				return proxy.Outcome{Expected: 3, Acked: 2, Ack: ack}, nil
			}
			return proxy.Outcome{Expected: 3, Acked: 3, Ack: ack}, nil
		}}
		s := small(t, f)
		if err := neighbour(s); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, row := range s.result.Rows {
			got[row.Name] = row.Value
		}
		for name, want := range map[string]float64{rowQuiet: 10, rowWithNoisy: 30, rowDelayed: 20, rowMissing: 2, rowNoisy: 1000} {
			if v, ok := got[name]; !ok || v < .95*want || v > 1.02*want {
				t.Errorf("%s is %g, want %g", name, v, want)
			}
		}
		if done := f.done(); f.ended != 2*alone || !strings.HasSuffix(done, "watch compare") {
			t.Errorf("%d edits ended; %s", f.ended, done)
		}
	})
}
