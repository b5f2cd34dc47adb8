package delta

import (
	"slices"
	"time"

	"navarch.io/navarch/push/xds"
)

// Patience is the maximum time for which a listener or a route waits for the clusters that it newly names. It leaves
// half a second to send the listener or route within two seconds.
const Patience = 1500 * time.Millisecond

// Tick sets the current time, which State uses for waits and ages. A time before that of an earlier call has no effect.
func (s *State) Tick(now time.Time) { s.now = max(s.now, now.UnixNano()) }

// Wake returns the time at which Next must be called even if there are no other events. At this time the first resource
// that waits for clusters has waited for Patience. If no resource waits, Wake returns false and a time without meaning.
func (s *State) Wake() (at time.Time, ok bool) {
	var first int64
	for _, t := range []xds.Type{xds.Listener, xds.Route} {
		for _, o := range s.types[t].overrides {
			if o.since != 0 && (first == 0 || o.since < first) {
				first = o.since
			}
		}
	}
	return time.Unix(0, first).Add(Patience), first != 0
}

// opened caches the result of openClusters.
type opened struct {
	known    bool
	clusters map[string]bool
	secrets  map[string]bool // maps a secret of the proxy's agent to the result of clusterHas
}

// openClusters returns the open clusters: the clusters of the newest set of which the client has acknowledged no
// version. The result maps each name to true if the cluster is warm when the client reads the next response
// (warmBehind). While s.deciding is set, the result is computed once. The call is cheap if everything is acknowledged.
func (s *State) openClusters() map[string]bool {
	cds, goal := &s.types[xds.Cluster], s.target.Types[xds.Cluster]
	answered := cds.acked
	if !s.claims && !s.early && cds.settled == 0 && len(cds.flights) > 0 {
		// A client that starts without resources requests listeners only after its first clusters are warm.
		answered = cds.flights[0].at
	}
	if !cds.subscribed || s.assumed || answered == goal && len(cds.overrides) == 0 {
		return nil
	}
	if s.opened.known {
		return s.opened.clusters
	}
	s.opened = opened{known: s.deciding, clusters: map[string]bool{}, secrets: map[string]bool{}}
	open := s.opened.clusters
	if answered != goal {
		for _, d := range s.cfg.Diffs.between(answered, goal) {
			if _, is := cds.overrides[d.Name]; !is && d.Old == nil && d.New != nil && cds.wants(d.Name) {
				open[d.Name] = s.warmBehind(cds.sent.Get(d.Name))
			}
		}
	}
	for i := range cds.flights { // a cluster that is removed and comes back counts as new
		for _, name := range cds.flights[i].removed {
			if goal.Get(name) != nil && cds.wants(name) {
				_, r := cds.later(cds.flights[i].nonce, name)
				open[name] = s.warmBehind(r)
			}
		}
	}
	for name, o := range cds.overrides {
		want := goal.Get(name)
		if want == nil || o.have != nil || o.claimed || !cds.wants(name) {
			continue
		}
		if o.flying == 0 && (want.Version == o.refused || s.withholds(want)) {
			continue // the cluster is not sent, so waiting for it would not end
		}
		open[name] = s.warmBehind(o.has())
	}
	return open
}

// warmBehind reports whether a sent cluster is warm when the client reads the next response. A cluster is warm if its
// assignment was sent after the cluster, the client has its secrets, and it needs nothing else. It returns false for
// nil.
func (s *State) warmBehind(r *xds.Resource) bool {
	if r == nil || r.WarmsUnseen {
		return false
	}
	for _, need := range r.Needs {
		if !s.assigned(need.Name) {
			return false
		}
	}
	for _, name := range r.Secrets {
		if !s.hasSecret(name) {
			return false
		}
	}
	return len(r.Needs) > 0
}

// assigned reports whether an assignment (EDS) was sent and need not be sent again after its cluster.
func (s *State) assigned(name string) bool {
	eds := &s.types[xds.Endpoint]
	if !eds.subscribed || eds.fresh || !eds.wants(name) {
		return false
	}
	o := eds.overrideOf(name, eds.sent)
	return !o.force && o.has() != nil
}

// hasSecret reports whether the client has acknowledged a secret. For a secret of the proxy's agent, it reports whether
// the client has acknowledged a cluster that needs the secret.
func (s *State) hasSecret(name string) bool {
	if sds := &s.types[xds.Secret]; sds.subscribed && sds.wants(name) {
		return s.Acknowledged(xds.Secret, name) != ""
	}
	has, known := s.opened.secrets[name]
	if !known {
		if has = s.clusterHas(name); s.opened.secrets != nil {
			s.opened.secrets[name] = has
		}
	}
	return has
}

// clusterHas reports whether the client has acknowledged a cluster with a secret.
func (s *State) clusterHas(secret string) bool {
	cds := &s.types[xds.Cluster]
	for r := range cds.acked.All() {
		if _, is := cds.overrides[r.Name]; !is && slices.Contains(r.Secrets, secret) {
			return true
		}
	}
	return false
}

// awaits reports whether a listener or route must wait for clusters. It waits if it newly names an open cluster that is
// not warm, or an outbound cluster that does not exist (leadsNowhere). Resources that authorise, authenticate or
// encrypt never wait. Other resources wait at most for Patience.
func (s *State) awaits(t xds.Type, want *xds.Resource, o override) bool {
	if t != xds.Listener && t != xds.Route || o.since != 0 && s.now-o.since >= int64(Patience) {
		return false
	}
	has := o.has()
	if t == xds.Route && s.leadsNowhere(want, has) {
		return !want.Guards() && !has.Guards()
	}
	open := s.openClusters()
	if len(open) == 0 || t == xds.Listener && want.Name == xds.VirtualInbound {
		return false
	}
	cold := func(name string) bool {
		warm, is := open[name]
		return is && !warm
	}
	return newlyNames(want, has, open, cold) && !want.Guards() && !has.Guards()
}

// leadsNowhere reports whether a virtual host that the client already has newly names an outbound cluster that does not
// exist. The cluster may still come, because users apply VirtualServices, DestinationRules and services in any order.
func (s *State) leadsNowhere(want, has *xds.Resource) bool {
	cds := &s.types[xds.Cluster]
	if !cds.subscribed || want == has {
		return false
	}
	for now, was := range want.Replaced(has) {
		for name := range now.EachName {
			if xds.IsOutbound(name) && cds.wants(name) && s.target.Types[xds.Cluster].Get(name) == nil && !was.Names(name) {
				return true
			}
		}
	}
	return false
}

// newlyNames reports whether a resource names one of the clusters for which the function pick returns true, and its
// previous version does not name this cluster.
func newlyNames(r, before *xds.Resource, clusters map[string]bool, pick func(string) bool) bool {
	if r.NumNames() < len(clusters) {
		for name := range r.EachName {
			if pick(name) && !before.Names(name) {
				return true
			}
		}
		return false
	}
	for name := range clusters {
		if r.Names(name) && pick(name) && !before.Names(name) {
			return true
		}
	}
	return false
}

// passes reports whether a resource may be sent now to a client that has no version of it.
func (s *State) passes(t xds.Type, r *xds.Resource) bool {
	return !s.withholds(r) && !s.awaits(t, r, override{})
}

// allPass reports whether passes returns true for all resources. It is cheap if no version is withheld and no cluster
// is open.
func (s *State) allPass(t xds.Type, all []*xds.Resource) bool {
	if s.withheld == nil && (t != xds.Listener && t != xds.Route || len(s.openClusters()) == 0) {
		return true
	}
	for _, r := range all {
		if !s.passes(t, r) {
			return false
		}
	}
	return true
}
