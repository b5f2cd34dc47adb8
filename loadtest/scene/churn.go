package scene

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/proxy"
)

// played contains the results of edits on a schedule.
type played struct {
	mu      sync.Mutex
	edits   int
	missing int                         // ACKs that did not arrive
	acks    map[string]*gauge.Histogram // by kind of edit, from the scheduled time
	failed  error
}

// play makes an edit at each interval, however long the last one took. Latencies are measured from the scheduled time,
// so that a server which delays the harness does not hide it (coordinated omission).
func (s *stage) play(every, span time.Duration, next func(i int) (string, mesh.Edit, error)) (*played, error) {
	p := &played{acks: map[string]*gauge.Histogram{}}
	var wg sync.WaitGroup
	err := s.schedule(every, span, func(i int, at time.Time) error {
		kind, e, err := next(i)
		if err != nil {
			return err
		}
		if err := s.replace(e); err != nil {
			return err
		}
		probe, err := s.fleet.Watch(s.watches(e))
		if err != nil {
			return err
		}
		if _, err := e.Apply(); err != nil {
			return err
		}
		p.edits++
		wg.Go(func() { s.collect(p, kind, e.What, probe, at) })
		return nil
	})
	wg.Wait()
	return p, errors.Join(err, p.failed)
}

// collect waits for the effects of one edit.
func (s *stage) collect(p *played, kind, what string, probe Probe, at time.Time) {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	err := probe.Await(ctx)
	o, outcome := probe.Outcome(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err = errors.Join(err, outcome); err != nil {
		p.failed = fmt.Errorf("%s: %w", what, err)
		return
	}
	if p.acks[kind] == nil {
		p.acks[kind] = &gauge.Histogram{}
	}
	p.acks[kind].Merge(o.Ack)
	if p.missing += o.Expected - o.Acked; o.Acked < o.Expected {
		s.note("%s: %d of %d ACKs came, missing %v", what, o.Acked, o.Expected, o.Missing)
	}
}

// all returns the latencies of all kinds together.
func (p *played) all() *gauge.Histogram {
	sum := &gauge.Histogram{}
	for _, h := range p.acks {
		sum.Merge(h)
	}
	return sum
}

// churn makes all kinds of edits on a schedule. At least one proxy in ten uses state of the world.
func churn(s *stage) error {
	if err := s.joined(func(spec *Spec) { spec.SotW = max(spec.SotW, .1) }); err != nil {
		return err
	}
	s.enter("churn")
	span := s.span(20 * time.Second)
	cpu0, _ := usage(s.watched())
	p, err := s.play(200*time.Millisecond, span, s.next)
	if err != nil {
		return err
	}
	cpu1, _ := usage(s.watched())
	for _, kind := range []string{"endpoint", "route", "policy", "deploy", "Sidecar"} {
		if p.acks[kind] != nil {
			s.latency("scheduled edit to ACK: "+kind, p.acks[kind])
		}
	}
	s.row("edits", "", float64(p.edits))
	s.row("scheduled edit to ACK, median", "ms", ms(p.all().Quantile(.5)))
	s.row(rowChurn, "ms", ms(p.all().Quantile(.99)))
	s.row(rowMissing, "", float64(p.missing))
	s.cost("servers' CPU", "cores", (cpu1-cpu0).Seconds()/span.Seconds())
	return s.equal()
}

// ramp is the time over which a new replica gets its share, in the scenario with a new replica; the default is a
// minute.
const ramp = 5 * time.Second

// grace is the shutdown time of the replica that leaves, with some hundred streams. Servers of other scenarios have a
// few seconds, because their proxies have no other replica at the end.
const grace = 30 * time.Second

// scale adds a replica and removes it again under churn, alternating with the steady state. The proxies follow their
// owner, as navarch-agent does; with a server that names no owner they stay where they are.
func scale(s *stage) error {
	if s.starter == nil {
		return errors.New("replicas that were not started here are not scaled here")
	}
	if err := s.joined(func(spec *Spec) { spec.Follow = true }); err != nil {
		return err
	}
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	m := &moves{}
	if err := s.steadily("steady, not counted", time.Second, nil, m); err != nil {
		return err
	}
	for range max(1, (s.Repeats+1)/2) {
		if err := s.round(m); err != nil {
			return err
		}
	}
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	s.row("p99 of the steady state", "ms", ms(median(m.steady)))
	s.row("p99 while scaling", "ms", ms(median(m.moving)))
	s.row(rowScale, "", float64(median(m.moving))/float64(max(1, median(m.steady))))
	moved := after.Since(before).Moves
	s.row("streams moved to an owner", "", float64(moved))
	s.row("turns while scaling, median", "ms", ms(median(m.took)))
	s.row(rowMissing, "", float64(m.missing))
	s.note("Medians of %d rounds, in which steady state, one replica more and one replica fewer took turns. A turn lasts until no "+
		"stream moves any more.", len(m.steady))
	if moved == 0 {
		s.note("No stream moved: the figures say nothing of scaling.")
	}
	return s.equal()
}

// moves contains the measurements of a scenario that scales: the p99 of each turn.
type moves struct {
	endpoints      int
	steady, moving []time.Duration
	took           []time.Duration // duration of each turn in which streams move
	missing        int
}

// steadily edits endpoints for a while and stores the p99; with a nil `into` it is discarded.
func (s *stage) steadily(what string, span time.Duration, into *[]time.Duration, m *moves) error {
	s.enter(what)
	p, err := s.playEndpoints(s.span(span), m)
	if err != nil || into == nil {
		return err
	}
	m.keep(s, what, p.all(), into)
	return nil
}

func (s *stage) playEndpoints(span time.Duration, m *moves) (*played, error) {
	p, err := s.play(100*time.Millisecond, span, func(int) (string, mesh.Edit, error) {
		m.endpoints++
		return "endpoint", s.churn.ToggleReadiness(m.endpoints % s.mesh.Settings.Services), nil
	})
	m.missing += p.missing
	return p, err
}

func (m *moves) keep(s *stage, what string, acks *gauge.Histogram, into *[]time.Duration) {
	*into = append(*into, acks.Quantile(.99))
	s.latency(fmt.Sprintf("%s, %d", what, len(m.steady)), acks)
}

// movesLimit is the longest duration of a turn in which streams move.
const movesLimit = 40 * time.Second

// moving repeats steadily until streams have moved and none moves any more, so that slow moves are measured completely.
func (s *stage) moving(what string, m *moves) error {
	s.enter(what)
	began, acks := time.Now(), &gauge.Histogram{}
	first, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	before := first
	for span := s.span(ramp + 3*time.Second); ; span = s.span(2 * time.Second) {
		p, err := s.playEndpoints(span, m)
		if err != nil {
			return err
		}
		acks.Merge(p.all())
		after, err := s.fleet.Stats()
		if err != nil {
			return err
		}
		if done := after.Moves == before.Moves && after.Moves > first.Moves; done || time.Since(began) > s.span(movesLimit) {
			break
		}
		before = after
	}
	m.took = append(m.took, time.Since(began))
	m.keep(s, what, acks, &m.moving)
	return nil
}

// round makes one turn each of the steady state, of a new replica that gets its share, and of a replica that leaves.
func (s *stage) round(m *moves) error {
	if err := s.quiet(); err != nil {
		return err
	}
	if err := s.steadily("steady", 5*time.Second, &m.steady, m); err != nil {
		return err
	}
	more, err := s.another()
	if err != nil {
		return err
	}
	if err := s.moving("one replica more", m); err != nil {
		return err
	}
	s.forget(more)
	left := make(chan struct{})
	go func() { more.stop(grace + 10*time.Second); close(left) }()
	err = s.moving("one replica fewer", m)
	<-left
	return err
}

// another starts one more replica and waits until it has the world.
func (s *stage) another() (*Server, error) {
	more, err := s.starter.replica()
	if err != nil {
		return nil, err
	}
	s.remember(more)
	return more, s.await("a replica starts", func() error { return more.loaded(s.ctx, s.mesh.Settings.Services) })
}

// replace ends the proxies of Pods that an edit removes, and starts those of the Pods that it adds.
func (s *stage) replace(e mesh.Edit) error {
	if len(e.Gone) == 0 {
		return nil
	}
	var gone []string
	for _, w := range e.Gone {
		gone = append(gone, w.Pod)
	}
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	if err := s.fleet.Remove(Select{Pods: gone}); err != nil {
		return err
	}
	after, err := s.fleet.Stats()
	if err != nil || after.Proxies == before.Proxies {
		return err // those Pods, and so their successors, have no proxies here
	}
	var come []proxy.Identity
	for _, w := range e.Come {
		come = append(come, s.identity(w))
	}
	return s.fleet.Add(come)
}

// next returns the i-th edit of the churn: mostly of endpoints, each time of another service. A deploy is always under
// way.
func (s *stage) next(i int) (string, mesh.Edit, error) {
	n, scoped := s.mesh.Settings.Services, s.mesh.Scoped()
	switch {
	case i%25 == 24 && len(scoped) > 0:
		e, err := s.churn.Sidecar(scoped[i/25%len(scoped)])
		return "Sidecar", e, err
	case i%10 == 9:
		return "route", s.churn.VirtualServices(i * 7 % n), nil
	case i%10 == 4:
		return "policy", s.churn.Policy(i * 3 % n), nil
	case i%10 == 7:
		if len(s.deploys) == 0 {
			s.rolling = i * 11 % n
			s.deploys = s.churn.Roll(s.rolling)
		}
		e := s.deploys[0]
		s.deploys = s.deploys[1:]
		return "deploy", e, nil
	}
	k := i * 13 % n
	if k == s.rolling {
		k = (k + 1) % n // its next files are made already
	}
	return "endpoint", s.churn.ToggleReadiness(k), nil
}
