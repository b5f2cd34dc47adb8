// Package metrics serves the resource metrics API (metrics.k8s.io) and the custom metrics API (custom.metrics.k8s.io)
// of a cluster of processes, as aggregated APIs. The values are CPU time and memory by the kernel's counters, and the
// metrics on Pods' own pages (prometheus.io/scrape). HorizontalPodAutoscalers and kubectl top read them.
//
// Owns: samples of the last seconds, in memory. Reads: /proc, the pages of Pods. Never: authorises requests (the API
// server does); has metrics of other objects than Pods and nodes.
package metrics

import (
	"time"
)

// window is the age limit of samples, and the longest interval of a rate.
const window = 10 * time.Second

type sample struct {
	at    time.Time
	value float64
}

// series is the samples of one number.
type series []sample

// add appends a sample and removes samples older than the window. A counter that has decreased was restarted: all
// earlier samples are removed.
func (s series) add(at time.Time, value float64, counter bool) series {
	if n := len(s); counter && n > 0 && value < s[n-1].value {
		s = nil
	}
	for len(s) > 0 && at.Sub(s[0].at) > window {
		s = s[1:]
	}
	return append(s, sample{at, value})
}

// last returns the newest value.
func (s series) last() (float64, bool) {
	if len(s) == 0 {
		return 0, false
	}
	return s[len(s)-1].value, true
}

// rate returns the growth of a counter per second; false: there are fewer than two samples.
func (s series) rate() (perSecond float64, over time.Duration, ok bool) {
	if len(s) < 2 {
		return 0, 0, false
	}
	first, last := s[0], s[len(s)-1]
	over = last.at.Sub(first.at)
	return (last.value - first.value) / over.Seconds(), over, true
}
