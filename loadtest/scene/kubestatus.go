package scene

import (
	"fmt"
	"time"

	"navarch.io/navarch/loadtest/mesh"
)

const (
	comeAndGo   = 2 * time.Minute // for how long proxies come and go, at scale 1, for each of five repeats
	statusRound = time.Second     // and how often others do
	statusShare = 100             // a hundredth of them
	calmFor     = 5 * time.Second // for so long no status has to be written before that begins
)

// routed is a world with objects that have a status.
func routed(s *mesh.Settings) {
	s.VirtualServices, s.DestinationRules, s.PolicyEvery = s.Services/5, s.Services/5, 5
}

// kubeStatus counts what is written to the status of objects while proxies come and go, and nothing else changes.
func kubeStatus(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	before, err := s.calm()
	if err != nil {
		return err
	}
	s.row("status writes until all proxies had joined", "", before)
	if before == 0 {
		return fmt.Errorf("no status was written for the objects of the world")
	}
	all, came := s.identities(0, s.proxies()), 0
	share := max(1, len(all)/statusShare)
	span := max(time.Duration(float64(s.Repeats)*min(1, s.Scale)*float64(comeAndGo)), 5*statusRound)
	s.enter(fmt.Sprintf("%d of %d proxies go and come each second, for %v", share, len(all), span))
	err = s.schedule(statusRound, span, func(i int, _ time.Time) error {
		from := i * share % (len(all) - share + 1)
		some := all[from : from+share]
		var pods []string
		for _, id := range some {
			pods = append(pods, id.Name)
		}
		came += share
		if err := s.fleet.Remove(Select{Pods: pods}); err != nil {
			return err
		}
		return s.fleet.Add(some)
	})
	if err != nil {
		return err
	}
	if err := s.fleet.WaitJoined(s.ctx); err != nil {
		return err
	}
	now, err := s.cluster.StatusWrites(s.ctx)
	if err != nil {
		return err
	}
	s.row(rowStatusWrites, "", now-before)
	s.row("proxies that came and went", "", float64(came))
	return s.equal()
}

// calm waits until no status was written for a while, and says how many were.
func (s *stage) calm() (float64, error) {
	s.enter("waiting until no status is written")
	last, since := -1.0, time.Now()
	for {
		n, err := s.cluster.StatusWrites(s.ctx)
		if err != nil {
			return 0, err
		}
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) >= calmFor {
			return n, nil
		}
		if err := s.pause("waiting until no status is written", time.Second); err != nil {
			return 0, err
		}
	}
}
