package scene

import (
	"fmt"
	"slices"
)

// admittedMetric counts the outcomes of new streams.
const admittedMetric = "navarch_joins_total"

// admitted returns the number of streams that the servers have admitted since they started; false: no metrics page has
// it.
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

// watchAdmission records the present number of admitted streams. letIn waits until that many streams more are admitted.
// A proxy that holds everything gets no response, so it counts itself as served once the server has read its requests,
// even while it waits for admission. For a server without the metric letIn returns at once.
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

// letIn waits until the servers have admitted a number of streams more than before.
func (s *stage) letIn(before float64, streams int) error {
	return s.await("all are let in", func() error {
		now, _, err := s.admitted()
		if err == nil && now-before < float64(streams) {
			err = fmt.Errorf("%.0f of %d streams were let in", now-before, streams)
		}
		return err
	})
}
