package scene

import (
	"fmt"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// It is quiet once nothing was said for quietLooks looks, one every quietStep. That is waited for as long as quietLimit.
const (
	quietStep  = 250 * time.Millisecond
	quietLooks = 4
	quietLimit = time.Minute
)

// quiet waits until all proxies are joined, have acknowledged everything, and neither ask nor are told anything for a second,
// so that first answers are not counted as those of an edit. Where it does not become quiet the scenario goes on, and its
// result says so.
func (s *stage) quiet() error {
	s.enter("waiting until the proxies are quiet")
	tick := time.NewTicker(quietStep)
	defer tick.Stop()
	var last proxy.TypeStats
	for began, looks := time.Now(), 0; ; {
		now, err := s.fleet.Stats()
		if err != nil {
			return err
		}
		total := now.Total()
		if looks++; now.Joined < now.Proxies || now.Unacked > 0 || total != last {
			looks = 0
		}
		if looks == quietLooks {
			return nil
		}
		if time.Since(began) >= quietLimit {
			s.note("The proxies were not quiet within %v, and what follows is measured beside that: %d of %d had joined, %d responses were not acknowledged, %d came in the last %v.",
				quietLimit, now.Joined, now.Proxies, now.Unacked, total.Responses-last.Responses, quietStep)
			return nil
		}
		last = total
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return fmt.Errorf("waiting until the proxies are quiet: %w", s.ctx.Err())
		}
	}
}
