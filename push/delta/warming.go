package delta

import (
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/xds"
)

// Warming describes why a client does not answer responses with clusters, for debugging.
type Warming struct {
	// Since is the time of the oldest response with clusters that the client has not answered for a second; zero: there is
	// none. Refusals of this response and of newer ones are not visible yet.
	Since time.Time
	// Clusters are the clusters that may be warming, sorted; at most maxSuspects. More counts the others.
	Clusters []string
	More     int
	// NotRequested means that the client has not requested clusters on this stream, and is sent clusters all the same. An
	// Envoy that reconnects while a cluster warms does not request them.
	NotRequested bool
}

const (
	// warmingAfter is the time without an answer to clusters after which the client counts as warming.
	warmingAfter = time.Second
	maxSuspects  = 20 // length of Warming.Clusters
)

// Warming describes whether the client warms clusters at the time now, and which clusters these may be. The result is
// zero except for NotRequested if it does not. The cost grows with the number of clusters in flight.
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
