package place

import "time"

// Signals are the numbers that an autoscaler goes by, of one replica. The names are those of the metrics.
type Signals struct {
	Proxies    float64 // navarch_proxies: streams that this replica serves
	Fleet      float64 // navarch_fleet_proxies_per_replica: streams of all, with those that wait to be let in, by ready replicas
	Imbalance  float64 // navarch_imbalance: streams here against this replica's share; 1 is even
	Misplaced  float64 // navarch_misplaced_proxies: streams here that another replica owns
	PushLag    float64 // navarch_push_lag_seconds: age of the oldest change that a stream waits for
	QueueDelay float64 // navarch_join_delay_seconds: how long a stream that comes now would wait to be let in
}

// Measures is what Signals is made of.
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
