package scene

import (
	"fmt"
	"time"

	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
)

// join measures the cost of proxies that join: first one of each namespace, which are the base, then all others.
func join(s *stage) error {
	if err := s.fleetOf(nil); err != nil {
		return err
	}
	cpu0, empty := usage(s.watched())
	first, n := min(len(s.mesh.Namespaces()), s.proxies()/2), s.proxies()
	if err := s.join(0, first); err != nil {
		return err
	}
	if err := s.quiet(); err != nil {
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
	calm := spent(s.watched()) // returning memory costs a collection that belongs to no join
	own, began := s.harness(), time.Now()
	if err := s.join(first, n); err != nil {
		return err
	}
	took := time.Since(began)
	cpu2, err := s.rest(calm)
	if err != nil {
		return err
	}
	own = s.harness() - own
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
	s.shared()
	s.row("harness, CPU per proxy", "ms", ms(own)/float64(n-first))
	if err := s.footprint(); err != nil {
		return err
	}
	return s.equal()
}

func mb(n uint64) float64 { return float64(n) / 1e6 }

// equal makes proxies of one View compare their resources, once no more responses arrive: differences are violations.
func (s *stage) equal() error {
	if err := s.quiet(); err != nil {
		return err
	}
	s.enter("comparing what proxies hold")
	_, err := s.fleet.CheckEqual()
	return err
}

// joined creates the scenario's fleet and lets its proxies join; the scenario begins once they are quiet.
func (s *stage) joined(change func(*Spec)) error {
	if err := s.fleetOf(change); err != nil {
		return err
	}
	if err := s.join(0, s.proxies()); err != nil {
		return err
	}
	return s.quiet()
}

// repeat makes one edit that is not counted, and then the measured ones.
func (s *stage) repeat(what string, into *effects, edit func(i int) error) error {
	for i := range s.Repeats + 1 {
		s.enter(fmt.Sprintf("%s, %d of %d", what, i, s.Repeats))
		s.measures(func() float64 { return float64(i) / float64(s.Repeats+1) })
		if i == 1 {
			*into = effects{} // the first was a warm-up
		}
		if err := edit(i); err != nil {
			return err
		}
	}
	return nil
}

// oneVirtualService edits one VirtualService repeatedly. Only its route configuration may be sent.
func oneVirtualService(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	k := s.seen()
	f := &effects{}
	if err := s.repeat("editing a VirtualService", f, func(int) error { return s.apply(s.churn.VirtualServices(k), f) }); err != nil {
		return err
	}
	f.report(s, "one VirtualService")
	s.row(rowOther, "", float64(f.traffic.Resources)-float64(f.proxies))
	return s.equal()
}

// seen returns a service that as many proxies as possible see: one of a namespace that most others see.
func (s *stage) seen() int {
	best, most := 0, -1
	for k := range min(200, s.mesh.Settings.Services) {
		_, namespace := s.mesh.Host(k)
		seers := s.mesh.Seers(namespace)
		if seers == nil {
			return k
		}
		if len(seers) > most {
			best, most = k, len(seers)
		}
	}
	return best
}

// fiftyVirtualServices edits 50 VirtualServices (or all, if there are fewer) in one change of one folder.
func fiftyVirtualServices(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	var ks []int
	for i := range min(50, s.mesh.Settings.Services) {
		ks = append(ks, i*s.mesh.Settings.Services/min(50, s.mesh.Settings.Services))
	}
	f := &effects{}
	if err := s.repeat("editing 50 VirtualServices", f, func(int) error { return s.apply(s.churn.VirtualServices(ks...), f) }); err != nil {
		return err
	}
	f.report(s, "50 VirtualServices")
	return s.equal()
}

// endpointEdit makes an endpoint not ready and ready again.
func endpointEdit(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	k := s.seen()
	f := &effects{}
	s.Repeats *= 4 // these calls are cheap, and a tail needs many
	if err := s.repeat("editing an endpoint", f, func(int) error { return s.apply(s.churn.ToggleReadiness(k), f) }); err != nil {
		return err
	}
	f.report(s, "endpoint edit")
	return s.equal()
}

// reconnect makes all proxies open new streams with claims of their resources.
func reconnect(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	letIn, err := s.watchAdmission()
	if err != nil {
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
	own, began := s.harness(), time.Now()
	if err := s.fleet.Reconnect(Select{}, proxy.Reconnect{Now: true}); err != nil {
		return err
	}
	if err := s.again(before, s.proxies()); err != nil {
		return err
	}
	if err := letIn(s.proxies()); err != nil {
		return err
	}
	took := time.Since(began)
	own = s.harness() - own
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
	s.row("harness, CPU per proxy", "ms", ms(own)/float64(s.proxies()))
	s.row(rowStreams, "1/s", float64(s.proxies())/took.Seconds())
	s.latency("dial to resumed", after.Resume)
	return s.equal()
}

// again waits until that many streams were opened since `before`, and all proxies have joined.
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

// offered is the number of pushes per second that the scenario rate requires: twice the target of a server.
const offered = 40000

// rate edits endpoints on a schedule beyond the capacity of a server, and counts the acknowledged pushes. A server that
// cannot send one push for each edit sends the newest state instead; the missing pushes are beyond its capacity.
func rate(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	services := s.popular()
	seers, err := s.audience(services[0])
	if err != nil {
		return err
	}
	every := min(max(time.Second*time.Duration(seers)/offered, 5*time.Millisecond), time.Second/10)
	span := s.span(20 * time.Second)
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	cpu0, _ := usage(s.watched())
	own := s.harness()
	s.enter(fmt.Sprintf("changing endpoints every %v", every))
	began, edits := time.Now(), 0
	if err := s.schedule(every, span, func(i int, _ time.Time) error {
		edits++
		_, err := s.churn.Port(services[i%len(services)]).Apply()
		return err
	}); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	during, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	cpu1, _ := usage(s.watched())
	own = s.harness() - own
	pushes := float64(during.Since(before).Types[xds.Endpoint.String()].Acks)
	s.row(rowRate, "1/s", pushes/took)
	s.row("pushes per second asked for", "1/s", float64(edits*seers)/took)
	s.row("edits per second", "1/s", float64(edits)/took)
	s.cost("server CPU per push", "us", 1000*ms(cpu1-cpu0)/max(1, pushes))
	s.cost("servers' CPU", "cores", (cpu1-cpu0).Seconds()/took)
	s.row("harness, CPU per push", "us", 1000*ms(own)/max(1, pushes))
	s.row("harness, CPU", "cores", own.Seconds()/took)
	s.note("Endpoints of services that %d of the proxies see change on a schedule, one every %v, whatever the server does. Pushes "+
		"are what was acknowledged in that time: a server that does not keep up sends the newest state instead of every one.", seers, every)
	return s.equal()
}

// popular returns up to 20 services that most proxies see.
func (s *stage) popular() []int {
	best := s.seen()
	_, namespace := s.mesh.Host(best)
	all := []int{best}
	for k := range s.mesh.Settings.Services {
		if _, other := s.mesh.Host(k); other == namespace && k != best && len(all) < 20 {
			all = append(all, k)
		}
	}
	return all
}

// audience returns the number of proxies that hold the endpoints of a service, which are those that an edit is pushed
// to.
func (s *stage) audience(k int) (int, error) {
	f := &effects{}
	if err := s.apply(s.churn.Port(k), f); err != nil {
		return 0, err
	}
	return f.proxies, nil
}

// span shortens a duration at small scales, to a minimum above zero.
func (s *stage) span(d time.Duration) time.Duration {
	return max(time.Duration(min(1, s.Scale)*float64(d)), d/10)
}

// schedule calls `do` at each interval for a span, whether or not the last call was slow: an open loop.
func (s *stage) schedule(every, span time.Duration, do func(i int, at time.Time) error) error {
	began := time.Now()
	s.measures(func() float64 { return min(1, float64(time.Since(began))/float64(span)) })
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
