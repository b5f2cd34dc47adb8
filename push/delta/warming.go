package delta

import (
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/xds"
)

// Warming describes why a client does not answer responses with clusters, for debugging.
type Warming struct {
	// Since is when the oldest response with clusters was sent that the client has not answered in time; zero: there is no
	// such response. Its refusal, or that of a newer one, is not visible yet.
	Since time.Time
	// Clusters are those that may be warming, sorted, maxSuspects at most. More counts the others.
	Clusters []string
	More     int
	// NotRequested means that the client does not request clusters, like an Envoy that reconnects while one of them warms.
	// It is sent them all the same.
	NotRequested bool
}

const (
	// warmingAfter bounds the time for an answer about clusters before the client counts as warming.
	warmingAfter = time.Second
	maxSuspects  = 20
)

// Warming returns whether the client warms clusters, and which these may be. Its cost grows with the clusters in
// flight.
func (s *State) Warming(now time.Time) (w Warming) {
	cds := &s.types[xds.Cluster]
	w.NotRequested = s.assumed
	if len(cds.flights) == 0 || !s.MayWarm() || now.UnixNano()-cds.flights[0].since < int64(warmingAfter) {
		return w
	}
	w.Since = time.Unix(0, cds.flights[0].since)
	newest := map[string]*xds.Resource{}
	for i := range cds.flights {
		for _, r := range cds.flights[i].set {
			newest[r.Name] = r
		}
		for _, name := range cds.flights[i].removed {
			delete(newest, name)
		}
	}
	all := slices.Sorted(maps.Keys(newest))
	w.Clusters = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return s.warmBehind(newest[name]) })
	if len(w.Clusters) == 0 {
		w.Clusters = all
	}
	w.More = max(0, len(w.Clusters)-maxSuspects)
	w.Clusters = w.Clusters[:len(w.Clusters)-w.More]
	return w
}
