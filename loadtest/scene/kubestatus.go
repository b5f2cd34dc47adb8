package scene

import (
	"fmt"
	"time"

	"navarch.io/navarch/loadtest/mesh"
)

const (
	// duration of the changes of proxies, at scale 1, for each of five repeats
	comeAndGo   = 2 * time.Minute
	statusRound = time.Second     // interval of these changes
	statusShare = 100             // each time one proxy in 100 is replaced
	calmFor     = 5 * time.Second // duration without status writes before they begin
)

// routed changes the settings to a world with objects that have a status.
func routed(s *mesh.Settings) {
	s.VirtualServices, s.DestinationRules, s.PolicyEvery = s.Services/5, s.Services/5, 5
}

// kubeStatus counts the status writes while proxies come and go, and no other change happens.
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

// calm waits until no status was written for calmFor, and returns the number of writes so far.
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
