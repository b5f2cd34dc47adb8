package delta

import (
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/xds"
)

// Warming describes for debugging why a client does not answer responses with clusters. Envoy answers them only when
// the new clusters are warm (have their endpoints and secrets).
type Warming struct {
	// Since is the time at which the oldest unanswered response with clusters was sent. Since is zero if no response
	// with clusters is unanswered, if the oldest one is less than a second old, or if State.MayWarm returns false. It
	// is not known yet whether the client refuses this response or newer responses with clusters.
	Since time.Time
	// Clusters are the names of the clusters that may be warming, sorted, at most 20. More is the number of further
	// clusters that may be warming.
	Clusters []string
	More     int
	// NotRequested means that the client has not requested clusters on this stream but is sent clusters (EndResume). An
	// Envoy that reconnects while a cluster warms does not request clusters.
	NotRequested bool
}

const (
	// warmingAfter is the time without an answer to clusters after which Warming.Since is set.
	warmingAfter = time.Second
	maxSuspects  = 20 // length of Warming.Clusters
)

// Warming reports whether the client warms clusters at the time now, and which clusters may be warming. If Since is
// zero, Clusters is nil and More is 0. NotRequested does not depend on Since.
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
