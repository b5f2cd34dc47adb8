package scene

import (
	"fmt"
	"slices"
)

// admittedMetric counts what became of the streams that came.
const admittedMetric = "navarch_joins_total"

// admitted is how many streams the servers have let in since they started; false where no metrics page says it.
func (s *stage) admitted() (float64, bool, error) {
	s.mu.Lock()
	all := slices.Clone(s.measured)
	s.mu.Unlock()
	total, found := 0., false
	for _, one := range all {
		if one.Metrics == "" {
			continue
		}
		page, err := one.metrics(s.ctx)
		if err != nil {
			return 0, false, err
		}
		if n, ok := page.By(admittedMetric, "result")["admitted"]; ok {
			total, found = total+n, true
		}
	}
	return total, found, nil
}

// watchAdmission watches streams come, and gives a function that waits until so many were let in since. A proxy that holds everything is
// answered nothing: it takes itself for served as soon as the server has read what it asked, also while it waits in line there.
// For a server that does not say it nothing is waited for.
func (s *stage) watchAdmission() (letIn func(streams int) error, err error) {
	before, found, err := s.admitted()
	if err != nil {
		return nil, err
	}
	return func(streams int) error {
		if !found {
			return nil
		}
		return s.letIn(before, streams)
	}, nil
}

// letIn waits until the servers have let in so many streams more than before.
func (s *stage) letIn(before float64, streams int) error {
	return s.await("all are let in", func() error {
		now, _, err := s.admitted()
		if err == nil && now-before < float64(streams) {
			err = fmt.Errorf("%.0f of %d streams were let in", now-before, streams)
		}
		return err
	})
}
