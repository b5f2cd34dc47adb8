package scene

import (
	"fmt"
	"slices"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// slow makes one proxy in a hundred stop reading, and compares the latencies of the others with those before.
func slow(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	k := s.seen()
	edit := func(f *effects) func(int) error {
		return func(int) error { return s.apply(s.churn.VirtualServices(k), f) }
	}
	with, without := &effects{}, &effects{}
	if err := s.repeat("editing, all read", without, edit(without)); err != nil {
		return err
	}
	_, before := usage(s.watched())
	var pods []string
	for _, id := range s.identities(0, max(1, s.proxies()/100)) {
		pods = append(pods, id.Name)
	}
	if err := s.fleet.Behave(Select{Pods: pods}, proxy.Behaviour{StopReading: true}); err != nil {
		return err
	}
	s.without = pods
	if err := s.repeat("editing, some do not read", with, edit(with)); err != nil {
		return err
	}
	_, after := usage(s.watched())
	ratio := func(q float64) float64 {
		return 100 * float64(with.acks.Quantile(q)) / float64(max(1, without.acks.Quantile(q)))
	}
	s.row(rowOthersP50, "%", ratio(.5))
	s.row(rowOthersP99, "%", ratio(.99))
	s.cost(rowGrown, "%", 100*(float64(after)/float64(before)-1))
	s.row("proxies that do not read", "", float64(len(pods)))
	s.latency("commit to ACK, all read", &without.acks)
	s.latency("commit to ACK, some do not", &with.acks)
	return nil
}

// kill ends one replica as a crash would; its proxies find another by themselves.
func kill(s *stage) error {
	victim := s.servers[0]
	if victim.cmd == nil {
		return fmt.Errorf("%s was not started here and is not ended here", victim.Name)
	}
	if err := s.joined(nil); err != nil {
		return err
	}
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	s.enter("one replica is killed")
	s.forget(victim)
	letIn, err := s.watchAdmission()
	if err != nil {
		return err
	}
	began := time.Now()
	victim.kill()
	streams := s.proxies() / len(s.servers)
	if err := s.again(before, streams); err != nil {
		return err
	}
	if err := letIn(streams); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	since := after.Since(before)
	s.row(rowHomed, "s", took.Seconds())
	s.row(rowBytes, "%", 100*float64(since.Total().BytesIn)/(float64(before.Total().BytesIn)*float64(streams)/float64(s.proxies())))
	s.row("streams moved", "", float64(since.Streams))
	s.row("tries to connect", "", float64(since.Dials))
	s.latency("dial to resumed", after.Resume)
	return s.equal()
}

// restart ends all replicas as crashes would, and starts them again at once, at the same addresses.
func restart(s *stage) error {
	for _, one := range s.servers {
		if one.cmd == nil {
			return fmt.Errorf("%s was not started here and is not ended here", one.Name)
		}
	}
	if err := s.joined(nil); err != nil {
		return err
	}
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	s.enter("all replicas are killed")
	for _, one := range s.servers {
		s.forget(one)
	}
	began := time.Now()
	for _, one := range s.servers {
		one.kill()
	}
	for i, one := range s.servers {
		if s.servers[i], err = s.starter.again(one); err != nil {
			return err
		}
		s.remember(s.servers[i])
	}
	if err := s.again(before, s.proxies()); err != nil {
		return err
	}
	if err := s.letIn(0, s.proxies()); err != nil {
		return err
	}
	took := time.Since(began)
	_, peak := usage(s.watched())
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	settled, err := s.settledMemory(peak)
	if err != nil {
		return err
	}
	since := after.Since(before)
	s.row(rowServed, "s", took.Seconds())
	s.row(rowBytes, "%", 100*float64(since.Total().BytesIn)/float64(before.Total().BytesIn))
	s.cost("RSS of all servers, when all are back", "MB", mb(peak))
	s.cost(rowAll, "MB", mb(settled))
	s.row("tries to connect", "", float64(since.Dials))
	s.latency("dial to resumed", after.Resume)
	return s.equal()
}

// remember adds a process to the measured and supervised ones.
func (s *stage) remember(one *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measured = append(slices.Clone(s.measured), one)
}

// forget removes a process from the measured and supervised ones.
func (s *stage) forget(gone *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []*Server
	for _, one := range s.measured {
		if one != gone {
			rest = append(rest, one)
		}
	}
	s.measured = rest
}
