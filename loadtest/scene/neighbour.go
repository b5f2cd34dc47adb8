package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
)

// The pace of the scenario's edits.
const (
	noisyRate  = 1000                   // edits of the noisy namespace per second
	quietPause = 200 * time.Millisecond // time between two edits of endpoints elsewhere
)

// tenants keeps at least that many namespaces in a world that is scaled down.
func tenants(least int) func(*mesh.Settings) {
	return func(s *mesh.Settings) { s.Namespaces = max(s.Namespaces, least) }
}

// endpointEdits contains the results of edits of endpoints in quiet namespaces.
type endpointEdits struct {
	mu       sync.Mutex
	count    int
	missing  int
	acks     gauge.Histogram // from the commit of the edit itself, of every proxy
	waited   gauge.Histogram // time in the ingester: from the oldest event of the edit's batch to the commit
	toCommit gauge.Histogram // from the edit of the file to the commit
	failed   error
}

// neighbour edits endpoints of quiet namespaces, first alone, then while the largest namespace is edited continuously.
func neighbour(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	noisy, quiet := s.sides()
	if len(noisy) == 0 || len(quiet) < 2 {
		return errors.New("the mesh has no second namespace")
	}
	span := s.span(20 * time.Second)
	s.enter("edits of endpoints alone")
	alone, err := s.editAll(quiet[:len(quiet)/2], span)
	if err != nil {
		return err
	}
	s.enter("edits of endpoints, with a noisy namespace")
	before, _ := s.objectsSince(0)
	cpu0, _ := usage(s.watched())
	began := time.Now()
	ctx, stop := context.WithCancel(s.ctx)
	noise := &noise{stage: s, churn: mesh.NewChurn(s.mesh, s.dir), services: noisy, written: before}
	var wg sync.WaitGroup
	wg.Go(func() { noise.run(ctx) })
	beside, err := s.editAll(quiet[len(quiet)/2:], span)
	stop()
	wg.Wait()
	took := time.Since(began).Seconds()
	cpu1, _ := usage(s.watched())
	if err = errors.Join(err, noise.failed); err != nil {
		return err
	}
	s.row(rowNoisy, "1/s", float64(noise.edits)/took)
	s.row("noisy namespace: objects committed a second", "1/s", float64(noise.objects)/took)
	s.row(rowQuiet, "ms", ms(alone.acks.Quantile(.99)))
	s.row(rowWithNoisy, "ms", ms(beside.acks.Quantile(.99)))
	s.row(rowDelayed, "ms", ms(max(0, beside.acks.Quantile(.99)-alone.acks.Quantile(.99))))
	s.row("endpoint's batch in the ingester, p99, alone", "ms", ms(alone.waited.Quantile(.99)))
	s.row("endpoint's batch in the ingester, p99, with it", "ms", ms(beside.waited.Quantile(.99)))
	s.row("edit of the file to commit, p99, alone", "ms", ms(alone.toCommit.Quantile(.99)))
	s.row("edit of the file to commit, p99, with it", "ms", ms(beside.toCommit.Quantile(.99)))
	s.row(rowMissing, "", float64(alone.missing+beside.missing))
	s.cost("servers' CPU with a noisy namespace", "cores", (cpu1-cpu0).Seconds()/took)
	s.latency("commit to ACK: alone", &alone.acks)
	s.latency("commit to ACK: beside", &beside.acks)
	return s.equal()
}

// sides returns the services of the largest namespace, and all others. At full size each of the others is edited at
// most once: for proxies that lag, a repeated endpoint would look like a version that goes back.
func (s *stage) sides() (noisy, quiet []int) {
	busy := s.mesh.Namespaces()[0]
	for k := range s.mesh.Settings.Services {
		if _, namespace := s.mesh.Host(k); namespace == busy {
			noisy = append(noisy, k)
		} else {
			quiet = append(quiet, k)
		}
	}
	return noisy, quiet
}

// editAll edits the endpoints of one service after the other on a schedule, and waits for all ACKs.
func (s *stage) editAll(services []int, span time.Duration) (*endpointEdits, error) {
	f := &endpointEdits{}
	var wg sync.WaitGroup
	err := s.schedule(cmp.Or(s.scenario.pace, quietPause), span, func(i int, _ time.Time) error {
		e := s.churn.ToggleReadiness(services[i%len(services)])
		probe, err := s.fleet.Watch(s.watches(e))
		if err != nil {
			return err
		}
		edited, err := e.Apply()
		if err != nil {
			return err
		}
		wg.Go(func() { s.acknowledged(f, e, probe, edited) })
		return nil
	})
	wg.Wait()
	return f, errors.Join(err, f.failed)
}

// ackPatience is the longest wait for the ACKs of one edit of many.
const ackPatience = 20 * time.Second

// p99 returns the 99th percentile of the times from commit to ACK. ACKs that did not come count as ackPatience.
func (f *endpointEdits) p99() time.Duration {
	if missing := uint64(f.missing); missing*100 > f.acks.Count()+missing {
		return ackPatience
	}
	return f.acks.Quantile(.99)
}

// acknowledged waits for the effects of one edit.
func (s *stage) acknowledged(f *endpointEdits, e mesh.Edit, probe Probe, edited time.Time) {
	ctx, cancel := context.WithTimeout(s.ctx, ackPatience)
	defer cancel()
	err := probe.Await(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	at, event, known := s.writer.wrote(s.ctx, e.Record, edited)
	if !known {
		at = s.committed(edited)
		event = at
		s.note("The server does not tell in which commit an object was written: times are from the first commit after the edit.")
	}
	o, outcome := probe.Outcome(at)
	if err = errors.Join(err, outcome); err != nil {
		f.failed = fmt.Errorf("%s: %w", e.What, err)
		return
	}
	f.count++
	if f.missing += o.Expected - o.Acked; o.Acked < o.Expected {
		s.note("%s: %d of %d ACKs came, missing %v", e.What, o.Acked, o.Expected, o.Missing)
	}
	f.acks.Merge(o.Ack)
	f.waited.Record(at.Sub(event))
	f.toCommit.Record(at.Sub(edited))
}

// noise edits the objects of one namespace, several at a time, without waiting.
type noise struct {
	*stage
	churn    *mesh.Churn // a Churn of its own, for services that have no other edits
	services []int
	written  int64 // revision up to which objects were counted

	edits, objects int
	failed         error
}

func (n *noise) run(ctx context.Context) {
	const every = 10 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	began := time.Now()
	for i := 1; n.failed == nil; i++ {
		for due := int(time.Since(began).Seconds() * noisyRate); n.edits < due && n.failed == nil; n.edits++ {
			_, n.failed = n.next(n.edits).Apply()
		}
		if i%50 == 0 {
			n.count()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			n.count()
			return
		}
	}
}

// next changes the services' routes first, then rules, then endpoints. Contents never repeat: proxies receive the
// newest ones with a delay, and a repeated content would look like a version that goes back.
func (n *noise) next(i int) mesh.Edit {
	k := n.services[i%len(n.services)]
	switch i / len(n.services) % 3 {
	case 0:
		return n.churn.VirtualServices(k)
	case 1:
		if e, has := n.churn.Tune(k); has {
			return e
		}
		return n.churn.VirtualServices(k)
	}
	return n.churn.Port(k)
}

// count adds the objects that the ingester has written since the last call.
func (n *noise) count() {
	var objects int
	was := n.written
	n.written, objects = n.objectsSince(was)
	n.objects += objects
}

// objectsSince returns the newest revision, and the number of objects that later commits than `since` wrote, as far as
// the server remembers them.
func (s *stage) objectsSince(since int64) (revision int64, objects int) {
	var all []commit
	if s.writer == nil || s.writer.page(s.ctx, commitsPage, &all) != nil {
		return since, 0
	}
	for _, c := range all {
		if c.Revision > since {
			revision, objects = c.Revision, objects+c.Puts+c.Deletes
		}
	}
	return max(revision, since), objects
}
