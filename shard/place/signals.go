package place

import "time"

// Signals are one replica's figures for an autoscaler. The names are those of the metrics.
type Signals struct {
	Proxies    float64 // navarch_proxies: streams of this replica
	Fleet      float64 // navarch_fleet_proxies_per_replica: streams of all, including waiting ones, per ready replica
	Imbalance  float64 // navarch_imbalance: streams relative to this replica's share; 1 is even
	Misplaced  float64 // navarch_misplaced_proxies: streams that another replica owns
	PushLag    float64 // navarch_push_lag_seconds: age of the oldest change that a stream waits for
	QueueDelay float64 // navarch_join_delay_seconds: expected wait of a stream that comes now
}

// Measures is the input of SignalsOf.
type Measures struct {
	Streams   int
	Misplaced int // Streams.Misplaced
	Numbers   Numbers
	PushLag   time.Duration
	Admission AdmissionState
}

// SignalsOf computes the signals.
func SignalsOf(m Measures) Signals {
	s := Signals{
		Proxies: float64(m.Streams), Fleet: m.Numbers.Mean(), Misplaced: float64(m.Misplaced),
		PushLag: m.PushLag.Seconds(), QueueDelay: m.Admission.Delay.Seconds(), Imbalance: 1,
	}
	if m.Numbers.Share > 0 {
		s.Imbalance = s.Proxies / m.Numbers.Share
	}
	return s
}
