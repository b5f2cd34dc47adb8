package scene

import (
	"context"
	"fmt"
	"slices"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/proxy"
)

// patience is the longest wait for the ACKs of one edit.
const patience = time.Minute

// effects contains the results of several edits of one kind.
type effects struct {
	edits    int
	acks     gauge.Histogram // from the commit, of every proxy
	received gauge.Histogram
	lasts    []time.Duration // last ACK from the commit, of each edit
	edited   []time.Duration // last ACK from the edit, of each edit
	cpu      time.Duration
	traffic  proxy.TypeStats // all types
	expected int             // expected ACKs of all edits
	proxies  int             // proxies that should see an edit, of all edits
}

// apply makes one edit, waits until all expected proxies have acknowledged it, and adds the measurements. The error
// names the edit whose ACKs did not arrive within `patience`.
func (s *stage) apply(e mesh.Edit, into *effects) error {
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	cpu := spent(s.watched())
	watches := s.watches(e)
	probe, edited, err := s.edit(e, watches)
	if err != nil {
		return err
	}
	after, err := s.rest(cpu)
	if err != nil {
		return err
	}
	committed := s.committed(edited)
	o, err := probe.Outcome(committed)
	if err != nil {
		return err
	}
	if o.Expected == 0 {
		return fmt.Errorf("%s: no proxy holds what it changes", e.What)
	}
	if o.Acked < o.Expected {
		return fmt.Errorf("%s: %d of %d ACKs came within %v; missing: %v", e.What, o.Acked, o.Expected, patience, o.Missing)
	}
	traffic, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	into.add(o, committed.Sub(edited), after-cpu, traffic.Since(before).Total(), len(watches))
	return nil
}

// edit makes an edit and waits until the watched resources are acknowledged, for `patience` at most. It returns the
// time of the edit. Errors are those of the edit and of the fleet.
func (s *stage) edit(e mesh.Edit, watches []Watch) (probe Probe, edited time.Time, err error) {
	if probe, err = s.fleet.Watch(watches); err != nil {
		return probe, edited, err
	}
	if edited, err = e.Apply(); err != nil {
		return probe, edited, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	return probe, edited, probe.Await(ctx)
}

func (f *effects) add(o proxy.Outcome, toCommit, cpu time.Duration, traffic proxy.TypeStats, watches int) {
	f.edits++
	f.acks.Merge(o.Ack)
	f.received.Merge(o.Receive)
	f.lasts = append(f.lasts, o.Ack.Max())
	f.edited = append(f.edited, o.Ack.Max()+toCommit)
	f.cpu += cpu
	f.expected += o.Expected
	f.proxies += o.Expected / max(1, watches)
	f.traffic.Responses += traffic.Responses
	f.traffic.Resources += traffic.Resources
	f.traffic.BytesIn += traffic.BytesIn
}

// committed returns the time of an edit's commit, or the time of the edit if the server does not report commits.
func (s *stage) committed(edited time.Time) time.Time {
	if s.cluster != nil {
		return edited // the time of the API server's answer
	}
	at, ok := s.writer.committed(s.ctx, edited)
	if !ok {
		s.note("The server has no page %s: times from the commit are from the edit of the file instead.", commitsPage)
		return edited
	}
	return at
}

// rest waits until the servers are at rest, for two seconds at most, and returns their CPU time then.
func (s *stage) rest(last time.Duration) (time.Duration, error) {
	const step, quiet = 50 * time.Millisecond, 2
	tick := time.NewTicker(step)
	defer tick.Stop()
	still := 0
	for range 40 {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return last, s.ctx.Err()
		}
		cpu := spent(s.watched())
		if still++; cpu > last {
			still = 0
		}
		if last = cpu; still == quiet {
			break
		}
	}
	return last, nil
}

// pause waits for d as a phase of its own. The error is that of the context.
func (s *stage) pause(what string, d time.Duration) error {
	s.enter(what)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// settleLimit is the longest wait for settled memory: servers return memory to the system up to half a minute after the
// last join. settleStill is the number of constant samples that end the wait.
const settleLimit, settleStill = 40 * time.Second, 5

// settledMemory waits until the servers' memory has fallen from a peak and stays constant, or until the limit has
// passed (less at small scales). The result, in bytes, is the memory that an operator sees a minute later.
func (s *stage) settledMemory(peak uint64) (uint64, error) {
	step := max(time.Duration(min(1, s.Scale)*float64(time.Second)), 10*time.Millisecond)
	now, lowest, still := peak, peak, 0
	for range settleLimit / time.Second {
		if err := s.pause("memory settles", step); err != nil {
			return 0, err
		}
		_, now = usage(s.watched())
		if still++; now < lowest-lowest/100 {
			lowest, still = now, 0
		}
		if lowest < peak-peak/50 && still == settleStill {
			break
		}
	}
	return now, nil
}

// report adds the rows of edits.
func (f *effects) report(s *stage, what string) {
	n := float64(f.edits)
	s.row(rowLast, "ms", ms(median(f.lasts)))
	s.row(rowP99, "ms", ms(slices.Max(f.lasts)))
	s.row(rowEdit, "ms", ms(median(f.edited)))
	s.cost(rowEditCPU, "ms", ms(f.cpu)/n)
	s.row(rowPushes, "", float64(f.traffic.Responses)/float64(max(1, f.proxies)))
	s.row(rowPerProxy+" and edit", "KB", float64(f.traffic.BytesIn)/1e3/float64(max(1, f.proxies)))
	s.latency("commit to ACK: "+what, &f.acks)
	s.latency("commit to response: "+what, &f.received)
	if f.edits < 100 {
		s.note("Of %d edits the slowest stands for p99; the others are medians.", f.edits)
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func median(all []time.Duration) time.Duration {
	all = slices.Clone(all)
	slices.Sort(all)
	if n := len(all); n > 0 {
		return all[n/2]
	}
	return 0
}
