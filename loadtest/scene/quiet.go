package scene

import (
	"fmt"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// Proxies are quiet when no message was exchanged at quietLooks checks, quietStep apart. The longest wait is
// quietLimit.
const (
	quietStep  = 250 * time.Millisecond
	quietLooks = 4
	quietLimit = time.Minute
)

// quiet waits until all proxies have joined and acknowledged everything, and no request or response was seen for a
// second. First responses are then not counted as those of an edit. If that does not happen within quietLimit, the
// scenario continues with a note in its result.
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
			s.note("The proxies were not quiet within %v, and what follows is measured beside that: %d of %d had joined, %d responses "+
				"were not acknowledged, %d came in the last %v.",
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
