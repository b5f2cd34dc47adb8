package scene

import (
	"context"
	"errors"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// processes is a fleet in several processes: proxies are distributed in turn. Its methods implement Fleet.
type processes struct {
	workers []*remote
	next    int
}

// newProcesses starts n workers.
func newProcesses(n int, argv []string, spec Spec) (*processes, error) {
	h := &processes{}
	spec.JoinRate /= float64(n)
	for range n {
		r, err := startRemote(argv, spec)
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.workers = append(h.workers, r)
	}
	return h, nil
}

// each makes a call to all workers concurrently.
func (h *processes) each(ctx context.Context, calls func(i int) call, got func(i int, a answer)) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i, w := range h.workers {
		wg.Go(func() {
			a, err := w.call(ctx, calls(i))
			mu.Lock()
			defer mu.Unlock()
			if failed = errors.Join(failed, err); err == nil && got != nil {
				got(i, a)
			}
		})
	}
	wg.Wait()
	return failed
}

func (h *processes) all(c call) error {
	return h.each(context.Background(), func(int) call { return c }, nil)
}

func (h *processes) Add(ids []proxy.Identity) error {
	parts := make([][]proxy.Identity, len(h.workers))
	for _, id := range ids {
		parts[h.next%len(parts)] = append(parts[h.next%len(parts)], id)
		h.next++
	}
	return h.each(context.Background(), func(i int) call { return call{Op: "add", Identities: parts[i]} }, nil)
}

func (h *processes) Remove(s Select) error { return h.all(call{Op: "remove", Select: s}) }

func (h *processes) WaitJoined(ctx context.Context) error {
	return h.each(ctx, func(int) call { return call{Op: "join"} }, nil)
}

func (h *processes) Stats() (proxy.Stats, error) {
	var sum proxy.Stats
	err := h.each(context.Background(), func(int) call { return call{Op: "stats"} }, func(_ int, a answer) { sum.Merge(*a.Stats) })
	return sum, err
}

func (h *processes) Reconnect(s Select, r proxy.Reconnect) error {
	return h.all(call{Op: "reconnect", Select: s, Reconnect: &r})
}

func (h *processes) Behave(s Select, b proxy.Behaviour) error {
	return h.all(call{Op: "behave", Select: s, Behaviour: &b})
}

// CheckEqual implements Fleet. It compares proxies within each process only.
func (h *processes) CheckEqual() (int, error) {
	n := 0
	err := h.each(context.Background(), func(int) call { return call{Op: "equal"} }, func(_ int, a answer) { n += a.N })
	return n, err
}

func (h *processes) Footprint() (uint64, error) {
	sum := uint64(0)
	err := h.each(context.Background(), func(int) call { return call{Op: "footprint"} }, func(_ int, a answer) { sum += a.Bytes })
	return sum, err
}

func (h *processes) PIDs() []int {
	var all []int
	for _, w := range h.workers {
		all = append(all, w.cmd.Process.Pid)
	}
	return all
}

func (h *processes) Trusting() (int, error) {
	n := 0
	err := h.each(context.Background(), func(int) call { return call{Op: "trusting"} }, func(_ int, a answer) { n += a.N })
	return n, err
}

func (h *processes) Certified() (map[string]int, error) {
	by := map[string]int{}
	err := h.each(context.Background(), func(int) call { return call{Op: "certified"} }, func(_ int, a answer) {
		for key, n := range a.By {
			by[key] += n
		}
	})
	return by, err
}

func (h *processes) Renew() error { return h.all(call{Op: "renew"}) }

func (h *processes) Close() error {
	var failed error
	for _, w := range h.workers {
		failed = errors.Join(failed, w.close())
	}
	return failed
}

func (h *processes) Watch(all []Watch) (Probe, error) {
	p := &processesProbe{processes: h, ids: make([]uint64, len(h.workers))}
	err := h.each(context.Background(), func(int) call { return call{Op: "watch", Watch: all} },
		func(i int, a answer) { p.ids[i] = uint64(a.N) })
	return p, err
}

type processesProbe struct {
	processes *processes
	ids       []uint64
}

func (p *processesProbe) Await(ctx context.Context) error {
	err := p.processes.each(ctx, func(i int) call { return call{Op: "await", Probe: p.ids[i]} }, nil)
	if ctx.Err() != nil {
		return nil // the outcome reports it
	}
	return err
}

func (p *processesProbe) Outcome(committed time.Time) (proxy.Outcome, error) {
	var sum proxy.Outcome
	err := p.processes.each(context.Background(), func(i int) call { return call{Op: "outcome", Probe: p.ids[i], Committed: committed} },
		func(_ int, a answer) { sum.Merge(*a.Outcome) })
	return sum, err
}
