// Package count defines the report of the sender of `make demo-kube`: the number of requests to each workload by each
// protocol, and of those that failed.
//
// Owns: nothing. Reads: nothing. Never: sends requests.
package count

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report contains all counts since the sender started.
type Report struct {
	At        time.Time
	Workloads map[string]*Workload
	Retries   int // retries by the sender's Envoy
}

// Workload contains the counts of one workload.
type Workload struct {
	Protocols map[string]*Protocol
	Caller    string               // the caller's identity by the workload's proxy (X-Forwarded-Client-Cert)
	Last      map[string]time.Time // time of the last answer of each version
}

// Protocol counts requests, or messages on an open stream or connection.
type Protocol struct {
	Sent, Failed int
	LastFailure  string // time and reason of the newest failure
}

// Span contains the counts between two reports.
type Span struct {
	Took                  time.Duration
	Sent, Failed, Retries int
	Failures              []string       // each workload and protocol with failures
	Protocols             map[string]int // sent requests
	Idle                  []string       // workloads and protocols without requests
}

// Since returns the counts after an earlier report of the same sender.
func (r *Report) Since(before *Report) Span {
	s := Span{Took: r.At.Sub(before.At), Retries: r.Retries - before.Retries, Protocols: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(r.Workloads)) {
		for _, protocol := range slices.Sorted(maps.Keys(r.Workloads[name].Protocols)) {
			now, then := *r.Workloads[name].Protocols[protocol], Protocol{}
			if w := before.Workloads[name]; w != nil && w.Protocols[protocol] != nil {
				then = *w.Protocols[protocol]
			}
			sent, failed := now.Sent-then.Sent, now.Failed-then.Failed
			s.Sent, s.Failed = s.Sent+sent, s.Failed+failed
			s.Protocols[protocol] += sent
			if failed > 0 {
				s.Failures = append(s.Failures, fmt.Sprintf("%s by %s: %d of %d, %s", name, protocol, failed, sent, now.LastFailure))
			}
			if sent == 0 {
				s.Idle = append(s.Idle, name+" by "+protocol)
			}
		}
	}
	return s
}

// Rate returns the sent requests per second.
func (s Span) Rate() float64 { return float64(s.Sent) / max(s.Took.Seconds(), 0.001) }

// Judge returns an error unless all requests of a span succeeded: a failure, a rate or duration below the minimum, or a
// workload or protocol without requests.
func (s Span) Judge(rate float64, atLeast time.Duration) error {
	switch {
	case s.Failed > 0:
		return fmt.Errorf("%d failed: %s", s.Failed, strings.Join(s.Failures, "; "))
	case len(s.Idle) > 0:
		return fmt.Errorf("nothing was sent to %s", strings.Join(s.Idle, ", "))
	case s.Took < atLeast:
		return fmt.Errorf("traffic for %v, want %v", s.Took.Round(time.Second), atLeast)
	case s.Rate() < rate:
		return fmt.Errorf("%.0f requests a second, want %.0f: too little to tell", s.Rate(), rate)
	}
	return nil
}

func (s Span) String() string {
	var by []string
	for _, protocol := range slices.Sorted(maps.Keys(s.Protocols)) {
		by = append(by, fmt.Sprintf("%s %d", protocol, s.Protocols[protocol]))
	}
	return fmt.Sprintf("%d requests in %.0f s (%.0f/s; %s), %d failed, %d retried by Envoy",
		s.Sent, s.Took.Seconds(), s.Rate(), strings.Join(by, ", "), s.Failed, s.Retries)
}
