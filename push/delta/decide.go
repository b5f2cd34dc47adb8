package delta

import (
	"fmt"
	"slices"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// verb is the decision about one name.
type verb uint8

const (
	hold verb = iota
	set
	remove
	wait // for clusters (awaits)
)

// decide returns the action for a name, given the client's state of it.
func (s *State) decide(t xds.Type, name string, o override) (verb, *xds.Resource) {
	return s.decideOn(t, name, o, s.stack(t).Get(name))
}

// decideOn is decide for a name of which the target's resource is known; nil: the target has no resource.
func (s *State) decideOn(t xds.Type, name string, o override, want *xds.Resource) (verb, *xds.Resource) {
	has, known := o.has(), !o.held || o.flying != 0
	switch {
	case want == nil && s.stack(t).Pending(name):
		return hold, nil // the client keeps its version, or waits for the first one
	case want == nil:
		return s.absent(t, name, o, has, known)
	case isDynamic(t) && want.Version == s.dynamicOf(t).refused:
		return hold, nil
	case want.Version == o.refused || !same(want, has) && s.withholds(want):
		if o.force && has != nil {
			return set, has // the last good version stays in effect
		}
		if has == nil && want.StandIn != nil && !o.claimed && !o.noStandIn && o.flying == 0 {
			return set, want.StandIn
		}
		return hold, nil
	case !o.force && known && same(has, want):
		return hold, nil
	case s.awaits(t, want, o):
		return wait, nil
	}
	return set, want
}

// absent is decide for a name without a resource. Each case states Envoy's reaction to the possible answers.
func (s *State) absent(t xds.Type, name string, o override, has *xds.Resource, known bool) (verb, *xds.Resource) {
	holds := has != nil || !known
	if isDynamic(t) {
		return s.absentDynamic(t, o, holds), nil
	}
	switch t {
	// Envoy obeys a removal at once. For an unknown name a removal means that the cluster does not exist.
	case xds.Cluster:
		if holds && s.mayRemove(name) || !holds && o.force {
			return remove, nil
		}
	case xds.Listener:
		if holds || o.force {
			return remove, nil
		}
	// Envoy ignores the removal of a route in use, and a listener that waits for the route waits for ever.
	case xds.Route:
		switch {
		case !holds && o.force || o.placeholder && o.force:
			return set, empty(t, name)
		case holds && !o.placeholder && s.drained(xds.Listener, name):
			return remove, nil
		}
	case xds.Endpoint: // a removal is ignored, an empty assignment is obeyed
		switch {
		case holds && s.leaves(name):
			if o.force && has != nil { // the cluster changed before it left, and warms until it has its hosts
				return set, has
			}
		case !o.placeholder || o.force:
			return set, empty(t, name)
		}
	case xds.Secret: // a removal is ignored; as a first answer it ends the wait of resources that need the secret
		if holds || o.force {
			return remove, nil
		}
	case xds.Extension:
		// A removal deletes the configuration of a filter that a listener still has, and the filter then answers 500. Envoy
		// unsubscribes with the last of its listeners. As a first answer a removal would end Envoy's own wait, but not the
		// listener's, which waits for ever (push/serve TestEnvoyDiscoversFilters).
	}
	return hold, nil
}

// leaves reports whether the cluster of an assignment is about to be removed. Until then its hosts stay.
func (s *State) leaves(name string) bool {
	return s.types[xds.Cluster].subscribed && s.target.Types[xds.Cluster].Get(name) == nil
}

// mayRemove reports whether no resource that the client holds or warms can name a cluster any more.
func (s *State) mayRemove(cluster string) bool {
	return s.unnamed(cluster) ||
		s.drained(xds.Listener, cluster) && s.drained(xds.Route, cluster) && s.released(cluster) && s.listenersHaveSecrets()
}

// released is drained for configurations of filters. A client without them need not subscribe first.
func (s *State) released(cluster string) bool {
	if s.types[xds.Extension].subscribed || s.target.Types[xds.Extension].Len() > 0 {
		return s.drained(xds.Extension, cluster)
	}
	return true
}

// drained reports whether the client has acknowledged all resources of a type that it requested, and holds no older
// version that names the given cluster or route. Without a subscription it is true, unless the client resumes (claims)
// and EndResume was not called.
func (s *State) drained(t xds.Type, named string) bool {
	if !s.types[t].subscribed {
		return s.resumeOver || !s.claims
	}
	r := s.rests[t]
	if !r.known {
		if r = s.restOf(t); s.deciding {
			s.rests[t] = r
		}
	}
	return !r.moving && !slices.ContainsFunc(r.others, func(o *xds.Resource) bool { return o.Mentions(named) })
}

// rest is the client's state of a type besides the newest versions of existing resources.
type rest struct {
	known  bool
	moving bool            // a part is to be sent, not acknowledged, or unknown
	others []*xds.Resource // versions that are not the newest
}

// restOf computes the rest. Its cost grows with the number of overrides.
func (s *State) restOf(t xds.Type) rest {
	ty := &s.types[t]
	if ty.fresh || len(ty.flights) > 0 || len(ty.retry) > 0 || ty.sent != s.target.Types[t] {
		return rest{known: true, moving: true}
	}
	r := rest{known: true}
	for name, o := range ty.overrides {
		v, _ := s.decide(t, name, o)
		unanswered := o.force && t == xds.Route && s.listenerNeeds(name)
		// A removed extension may be held for ever.
		if v == set || v == remove || unanswered || o.claimed && t != xds.Extension {
			return rest{known: true, moving: true}
		}
		if o.refused != "" && o.have == nil && s.claims {
			// The version that the client has instead may be of an earlier stream on which it refused a part of the same
			// response.
			return rest{known: true, moving: true}
		}
		if o.have != nil && !o.placeholder {
			r.others = append(r.others, o.have)
		}
		r.others = append(r.others, o.maybe...)
	}
	return r
}

// listenerNeeds reports whether a listener requests a route. Until the route is answered a new version of the listener
// waits, and the old one serves.
func (s *State) listenerNeeds(route string) bool {
	for l := range s.target.Types[xds.Listener].All() {
		if slices.Contains(l.Needs, xds.Ref{Type: xds.Route, Name: route}) {
			return true
		}
	}
	return false
}

// listenersHaveSecrets reports whether no listener waits for a requested secret, in the same way.
func (s *State) listenersHaveSecrets() bool {
	sds := &s.types[xds.Secret]
	if !sds.subscribed {
		return true
	}
	named := func(secret string) bool {
		for l := range s.target.Types[xds.Listener].All() {
			if l.Names(secret) {
				return true
			}
		}
		return false
	}
	if sds.fresh && slices.ContainsFunc(sds.names.All(), named) {
		return false
	}
	for name, o := range sds.overrides {
		if (o.force || o.flying != 0 && o.have == nil) && named(name) {
			return false
		}
	}
	return !slices.ContainsFunc(sds.flights, func(f flight) bool {
		return slices.ContainsFunc(f.set, func(r *xds.Resource) bool { return sds.acked.Get(r.Name) == nil && named(r.Name) })
	})
}

// decided ends a run of decisions in which the inputs of drained do not change, so that these are computed once for all
// names.
func (s *State) decided() { s.deciding, s.rests, s.opened = false, [xds.NumTypes]rest{}, opened{} }

// empty returns the placeholder for a missing resource: no hosts (503), or no virtual hosts (404).
func empty(t xds.Type, name string) *xds.Resource {
	var r *xds.Resource
	var err error
	if t == xds.Endpoint {
		r, err = xds.Encode(t, name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
	} else {
		r, err = xds.Encode(t, name, &routev3.RouteConfiguration{Name: name})
	}
	if err != nil { // only for a name that is not UTF-8, which the parser refuses
		panic(fmt.Sprintf("delta: empty %v: %v", t, err))
	}
	return r
}
