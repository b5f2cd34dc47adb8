package place

import "time"

// Signals holds one replica's values for an autoscaler. The comment of each field begins with the name of its metric.
type Signals struct {
	Proxies    float64 // navarch_proxies: number of streams that this replica serves
	Fleet      float64 // navarch_fleet_proxies_per_replica: Numbers.Mean
	Imbalance  float64 // navarch_imbalance: Proxies divided by Numbers.Share; 1 if they are equal, or if the share is 0
	Misplaced  float64 // navarch_misplaced_proxies: number of this replica's streams whose proxies another replica owns
	PushLag    float64 // navarch_push_lag_seconds: longest time that a stream has waited for a push, in seconds
	QueueDelay float64 // navarch_join_delay_seconds: expected wait of a new stream for admission, in seconds
}

// Measures is the input of SignalsOf.
type Measures struct {
	Streams   int            // number of streams (member.Streams.Total)
	Misplaced int            // streams whose proxies another replica owns (member.Streams.Misplaced)
	Numbers   Numbers        // result of Replica.Numbers
	PushLag   time.Duration  // longest time that a stream has waited for a push
	Admission AdmissionState // result of Admission.State; only Delay is used
}

// SignalsOf computes the signals of one replica. It converts durations to seconds.
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
