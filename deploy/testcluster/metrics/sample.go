// Package metrics serves the resource metrics API (metrics.k8s.io) and the custom metrics API (custom.metrics.k8s.io) of a cluster of
// processes, as aggregated APIs: processor time and memory as the kernel counts them, and what Pods say on their own pages
// (prometheus.io/scrape). HorizontalPodAutoscalers and kubectl top read them.
//
// Owns: samples of the last seconds, in memory.  Reads: /proc, the pages of Pods.  Never: authorises (who the API server lets through may read
// all); metrics of other objects than Pods and nodes.
package metrics

import (
	"time"
)

// window is how far samples reach back; rates are over it, or what is there of it.
const window = 10 * time.Second

type sample struct {
	at    time.Time
	value float64
}

// series is the samples of one number.
type series []sample

// add appends a sample and drops what is older than the window. A counter that became smaller began again: what was before is dropped.
func (s series) add(at time.Time, value float64, counter bool) series {
	if n := len(s); counter && n > 0 && value < s[n-1].value {
		s = nil
	}
	for len(s) > 0 && at.Sub(s[0].at) > window {
		s = s[1:]
	}
	return append(s, sample{at, value})
}

// last is the newest value.
func (s series) last() (float64, bool) {
	if len(s) == 0 {
		return 0, false
	}
	return s[len(s)-1].value, true
}

// rate is by how much a counter grew in a second; false: there are not two samples yet.
func (s series) rate() (perSecond float64, over time.Duration, ok bool) {
	if len(s) < 2 {
		return 0, 0, false
	}
	first, last := s[0], s[len(s)-1]
	over = last.at.Sub(first.at)
	return (last.value - first.value) / over.Seconds(), over, true
}
