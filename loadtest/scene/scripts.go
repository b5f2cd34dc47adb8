package scene

import (
	"context"
	"fmt"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// join measures what proxies cost that join: first one of each namespace, which are the base, then all others.
func join(s *stage) error {
	if err := s.fleetOf(nil); err != nil {
		return err
	}
	cpu0, empty := usage(s.watched())
	first, n := min(len(s.world.Namespaces()), s.proxies()/2), s.proxies()
	if err := s.join(0, first); err != nil {
		return err
	}
	cpu1, err := s.rest(cpu0)
	if err != nil {
		return err
	}
	_, busy := usage(s.watched())
	base, err := s.settledMemory(busy)
	if err != nil {
		return err
	}
	calm := spent(s.watched()) // giving memory back costs a collection, which is nobody's join
	began := time.Now()
	if err := s.join(first, n); err != nil {
		return err
	}
	took := time.Since(began)
	cpu2, err := s.rest(calm)
	if err != nil {
		return err
	}
	stats, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	_, peak := usage(s.watched())
	settled, err := s.settledMemory(peak)
	if err != nil {
		return err
	}
	bytes := stats.Total().BytesIn
	s.cost(rowCPU, "ms", ms(cpu1-cpu0+cpu2-calm)/float64(n))
	s.cost(rowWarm, "ms", ms(cpu2-calm)/float64(n-first))
	s.cost(rowBase, "MB", mb(empty))
	s.cost("RSS with one proxy in each namespace", "MB", mb(base))
	s.cost(rowRSS, "KB", (float64(settled)-float64(base))/1e3/float64(n-first))
	s.cost("RSS per proxy beyond the base, while joining", "KB", (float64(peak)-float64(base))/1e3/float64(n-first))
	s.cost(rowAll, "MB", mb(settled))
	s.row(rowPerProxy, "KB", float64(bytes)/1e3/float64(n))
	s.row(rowSent, "MB/s", float64(bytes)*float64(n-first)/float64(n)/1e6/took.Seconds())
	s.row("joined per second", "1/s", float64(n-first)/took.Seconds())
	s.latency("dial to warm", stats.Join)
	return s.equal()
}

func mb(n uint64) float64 { return float64(n) / 1e6 }

// equal has proxies of one View compare what they hold: differences are violations.
func (s *stage) equal() error {
	s.enter("comparing what proxies hold")
	_, err := s.fleet.CheckEqual()
	return err
}

// pause lets time pass.
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

// joined makes a fleet of the scenario's proxies and has them join.
func (s *stage) joined(change func(*Spec)) error {
	if err := s.fleetOf(change); err != nil {
		return err
	}
	return s.join(0, s.proxies())
}

// repeat does an edit that nobody counts, and then those that are measured.
func (s *stage) repeat(what string, into *effects, edit func(i int) error) error {
	for i := range s.Repeats + 1 {
		s.enter(fmt.Sprintf("%s, %d of %d", what, i, s.Repeats))
		if i == 1 {
			*into = effects{} // the first was for practice
		}
		if err := edit(i); err != nil {
			return err
		}
	}
	return nil
}

// oneVirtualService edits one VirtualService, again and again. Only its route configuration may be sent.
func oneVirtualService(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	k := s.seen()
	f := &effects{}
	if err := s.repeat("editing a VirtualService", f, func(int) error { return s.apply(s.churn.VirtualServices(k), f) }); err != nil {
		return err
	}
	f.tell(s, "one VirtualService")
	s.row(rowOther, "", float64(f.traffic.Resources)-float64(f.proxies))
	return s.equal()
}

// seen is a service that as many proxies as possible see: of a namespace that most others see.
func (s *stage) seen() int {
	best, most := 0, -1
	for k := range min(200, s.world.Settings.Services) {
		_, namespace := s.world.Host(k)
		seers := s.world.Seers(namespace)
		if seers == nil {
			return k
		}
		if len(seers) > most {
			best, most = k, len(seers)
		}
	}
	return best
}

// fiftyVirtualServices edits 50 (or as many as there are) in one change of one folder.
func fiftyVirtualServices(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	var ks []int
	for i := range min(50, s.world.Settings.Services) {
		ks = append(ks, i*s.world.Settings.Services/min(50, s.world.Settings.Services))
	}
	f := &effects{}
	if err := s.repeat("editing 50 VirtualServices", f, func(int) error { return s.apply(s.churn.VirtualServices(ks...), f) }); err != nil {
		return err
	}
	f.tell(s, "50 VirtualServices")
	return s.equal()
}

// flip takes the readiness of an endpoint away and gives it back.
func flip(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	k := s.seen()
	f := &effects{}
	s.Repeats *= 4 // they are cheap, and a tail wants many
	if err := s.repeat("flipping an endpoint", f, func(int) error { return s.apply(s.churn.Flip(k), f) }); err != nil {
		return err
	}
	f.tell(s, "endpoint flip")
	return s.equal()
}

// reconnect has all proxies open new streams, claiming what they hold.
func reconnect(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	cpu0, err := s.rest(0)
	if err != nil {
		return err
	}
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	s.enter("all reconnect")
	began := time.Now()
	if err := s.fleet.Reconnect(Select{}, proxy.Reconnect{Now: true}); err != nil {
		return err
	}
	if err := s.again(before, s.proxies()); err != nil {
		return err
	}
	took := time.Since(began)
	cpu1, err := s.rest(cpu0)
	if err != nil {
		return err
	}
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	bytes := after.Since(before).Total().BytesIn
	s.row(rowBytes, "%", 100*float64(bytes)/float64(before.Total().BytesIn))
	s.cost(rowCPU, "ms", ms(cpu1-cpu0)/float64(s.proxies()))
	s.row(rowStreams, "1/s", float64(s.proxies())/took.Seconds())
	s.latency("dial to resumed", after.Resume)
	return s.equal()
}

// again waits until so many streams were opened since, and all proxies are joined.
func (s *stage) again(before proxy.Stats, streams int) error {
	return s.await("all are back", func() error {
		now, err := s.fleet.Stats()
		if err != nil {
			return err
		}
		if opened := now.Since(before).Streams; opened < uint64(streams) || now.Joined < now.Proxies {
			return fmt.Errorf("%d of %d streams opened, %d of %d proxies joined", opened, streams, now.Joined, now.Proxies)
		}
		return nil
	})
}

// rate flips endpoints on a schedule that asks for more than a server should manage, and counts what proxies acknowledge.
func rate(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	every, span := 100*time.Millisecond, s.span(10*time.Second)
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	cpu0, _ := usage(s.watched())
	s.enter("flipping endpoints")
	began := time.Now()
	if err := s.schedule(every, span, func(i int, _ time.Time) error {
		_, err := s.churn.Flip(i).Apply()
		return err
	}); err != nil {
		return err
	}
	if err := s.still(); err != nil {
		return err
	}
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	cpu1, _ := usage(s.watched())
	took, pushes := time.Since(began).Seconds(), float64(after.Since(before).Total().Acks)
	s.row(rowRate, "1/s", pushes/took)
	s.cost("server CPU per push", "us", 1000*ms(cpu1-cpu0)/max(1, pushes))
	s.note("One endpoint flips every %v: a server that keeps up sends one push for each to every proxy that sees it, and no more.", every)
	return s.equal()
}

// span is how long something that takes its time goes on: shorter at small scales, but never nothing.
func (s *stage) span(d time.Duration) time.Duration {
	return max(time.Duration(min(1, s.Scale)*float64(d)), d/10)
}

// schedule calls do every so often for a span, whether or not the last call was slow: an open loop.
func (s *stage) schedule(every, span time.Duration, do func(i int, at time.Time) error) error {
	began := time.Now()
	for i := range int(span / every) {
		at := began.Add(time.Duration(i) * every)
		timer := time.NewTimer(time.Until(at))
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return s.ctx.Err()
		}
		if err := do(i, at); err != nil {
			return err
		}
	}
	return nil
}

// still waits until the proxies are told nothing any more.
func (s *stage) still() error {
	last := uint64(0)
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for same := 0; same < 3; {
		now, err := s.fleet.Stats()
		if err != nil {
			return err
		}
		if acks := now.Total().Acks; acks == last {
			same++
		} else {
			same, last = 0, acks
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
