package delta

import (
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/xds"
)

// Warming is why a client does not answer about clusters, for debugging.
type Warming struct {
	// Since is when the oldest response with clusters was sent that has no answer, although the client had time for it;
	// zero: there is none. A refusal of it, or of a newer one, is not visible yet.
	Since time.Time
	// Clusters are those that may warm, sorted: at most maxSuspects. More is how many others there are.
	Clusters []string
	More     int
	// NotRequested: the client does not ask for clusters, as an Envoy that connected again while one of them warms. It
	// is sent them all the same.
	NotRequested bool
}

const (
	// warmingAfter is for how long an answer about clusters may take before the client counts as warming.
	warmingAfter = time.Second
	maxSuspects  = 20
)

// Warming says whether the client warms clusters, and which may be meant. It costs as much as there are clusters in
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
