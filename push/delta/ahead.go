package delta

import (
	"slices"

	"navarch.io/navarch/push/xds"
)

// ahead is a listener or a route that was sent although it newly names an open cluster. A cluster is open while the
// client has acknowledged no version of it. Envoy may still refuse the cluster. It reports a refusal only when all
// warming clusters are warm.
type ahead struct {
	t      xds.Type
	before *xds.Resource // the last version that names no open cluster; nil: no such version is known
	sent   *xds.Resource
}

// maxAhead is the maximum length of State.ahead.
const maxAhead = 256

// goesAhead records in s.ahead the resources of a response that newly name an open cluster. It is called before the
// response is sent.
func (s *State) goesAhead(t xds.Type, set []*xds.Resource) {
	if t != xds.Listener && t != xds.Route {
		return
	}
	open := s.openClusters()
	if len(open) == 0 {
		return
	}
	ty := &s.types[t]
	is := func(name string) bool { _, is := open[name]; return is }
	for _, r := range set {
		before := ty.current(r.Name).has()
		i := slices.IndexFunc(s.ahead, func(a ahead) bool { return a.t == t && a.sent.Name == r.Name })
		if i >= 0 {
			before = s.ahead[i].before
		}
		newly := newlyNames(r, before, open, is)
		switch {
		case i >= 0 && newly:
			s.ahead[i].sent = r
		case i >= 0:
			s.ahead = slices.Delete(s.ahead, i, i+1)
		case newly && len(s.ahead) == maxAhead:
			s.lost = true
		case newly:
			s.ahead = append(s.ahead, ahead{t: t, before: before, sent: r})
		}
	}
}

// arrives removes from s.ahead the resources that no longer newly name an open cluster. It is called after an answer to
// a CDS response. It does nothing while other CDS responses are unanswered or must be sent again.
func (s *State) arrives() {
	if cds := &s.types[xds.Cluster]; len(s.ahead) == 0 || len(cds.flights) > 0 || len(cds.retry) > 0 {
		return
	}
	open := s.openClusters()
	is := func(name string) bool { _, is := open[name]; return is }
	s.ahead = slices.DeleteFunc(s.ahead, func(a ahead) bool { return len(open) == 0 || !newlyNames(a.sent, a.before, open, is) })
	if len(s.ahead) == 0 {
		s.ahead, s.lost = nil, false
	}
}

// fallBack marks the resources in s.ahead that name a refused cluster, so that their previous versions are sent again.
// It is called if the client has no other version of the cluster. A newer version of a marked resource is sent as
// usual.
func (s *State) fallBack(cluster string) {
	for _, a := range s.ahead {
		ty := &s.types[a.t]
		if a.before == nil || !a.sent.Names(cluster) || a.before.Names(cluster) || !ty.wants(a.sent.Name) {
			continue
		}
		o := ty.current(a.sent.Name)
		if !same(o.has(), a.sent) || o.refused == a.sent.Version {
			continue
		}
		o.have, o.held, o.force, o.refused, o.lacks = a.before, true, true, a.sent.Version, cluster
		ty.put(a.sent.Name, o)
	}
}

// comesBack undoes fallBack for clusters that the client has accepted, so that the newest versions are sent.
func (s *State) comesBack(clusters []*xds.Resource) {
	for _, t := range []xds.Type{xds.Listener, xds.Route} {
		ty := &s.types[t]
		for name, o := range ty.overrides {
			if o.lacks == "" {
				continue
			}
			if _, is := slices.BinarySearchFunc(clusters, o.lacks, byName); is {
				o.refused, o.lacks = "", ""
				ty.put(name, o)
			}
		}
	}
}

// unusable drops the previous versions in s.ahead that name a removed cluster, because they cannot be sent again.
func (s *State) unusable(removed []string) {
	for i := range s.ahead {
		if a := &s.ahead[i]; a.before != nil && slices.ContainsFunc(removed, a.before.Mentions) {
			a.before = nil
		}
	}
}

// unnamed reports whether the client has acknowledged no version of a cluster, and no resource that was sent names the
// cluster. If this is not certain, the result is false.
func (s *State) unnamed(cluster string) bool {
	cds := &s.types[xds.Cluster]
	if s.lost || s.claims || !xds.MayName(cluster) {
		return false
	}
	o := cds.overrideOf(cluster, cds.acked)
	if o.have != nil || o.claimed || o.held || slices.ContainsFunc(s.ahead, func(a ahead) bool { return a.sent.Names(cluster) }) {
		return false
	}
	names := func(r *xds.Resource) bool { return r.Names(cluster) }
	for _, t := range []xds.Type{xds.Listener, xds.Route} {
		ty := &s.types[t]
		if len(ty.flights) > 0 {
			return false
		}
		for _, o := range ty.overrides {
			if names(o.have) || slices.ContainsFunc(o.maybe, names) {
				return false
			}
		}
	}
	return true
}
