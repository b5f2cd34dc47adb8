package scene

import (
	"testing"
	"time"

	"navarch.io/navarch/loadtest/mesh"
)

// A scenario's proxies are distributed over as many processes as the limit of open files requires, and no more.
func TestWorkersByFiles(t *testing.T) {
	for _, c := range []struct{ workers, files, proxies, want int }{
		{-1, 20000, 2000, 0}, {-1, 20000, 19500, 0}, {-1, 20000, 19501, 2}, {-1, 20000, 20000, 2}, {-1, 20000, 40000, 3}, {-1, 1024, 10000, 20},
		{0, 1024, 10000, 0}, {3, 20000, 10, 3},
	} {
		s := &stage{Options: Options{Workers: c.workers, Files: c.files, Proxies: c.proxies}}
		if got := s.workers(); got != c.want {
			t.Errorf("%+v: %d workers", c, got)
		}
	}
}

// The usage of a process counts during the scenario, or from its start if the scenario has started it.
func TestSamples(t *testing.T) {
	at := time.Unix(0, 0)
	for _, started := range []bool{true, false} {
		m := newSamples()
		m.add("a", sample{at, 3 * time.Second, 100}, started, 0)
		if cores := m.add("a", sample{at.Add(2 * time.Second), 4 * time.Second, 300}, started, 2); cores != .5 {
			t.Errorf("%g cores", cores)
		}
		m.add("a", sample{at.Add(3 * time.Second), 4 * time.Second, 200}, started, 3)
		want := 1.0
		if started {
			want = 4
		}
		if u := *m.used["a"]; u.CPU != want || u.PeakRSS != 300 || u.LastRSS != 200 {
			t.Errorf("started %t: %+v", started, u)
		}
		if n := len(m.cpu["a"].Points); n != 2 || len(m.memory["a"].Points) != 3 {
			t.Errorf("%d points of the processor", n)
		}
	}
}

// All services whose endpoints change in the scenario rate are seen by the same proxies, so every edit is sent to the
// same number of proxies.
func TestPopularServicesHaveOneAudience(t *testing.T) {
	settings, err := mesh.Load("world-b")
	if err != nil {
		t.Fatal(err)
	}
	w, err := mesh.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{mesh: w}
	all := s.popular()
	if len(all) < 5 {
		t.Fatalf("%d services", len(all))
	}
	_, want := w.Host(all[0])
	for _, k := range all {
		if _, namespace := w.Host(k); namespace != want {
			t.Errorf("service %d is of %s, others of %s", k, namespace, want)
		}
	}
}
