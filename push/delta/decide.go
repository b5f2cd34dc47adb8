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
	hold   verb = iota // send nothing
	set                // send a resource
	remove             // send a removal
	wait               // send nothing yet, because clusters must become warm first (awaits)
)

// decide returns the decision about a name. For the verb "set", it also returns the resource to send. The argument o is
// the client's state of the name.
func (s *State) decide(t xds.Type, name string, o override) (verb, *xds.Resource) {
	return s.decideOn(t, name, o, s.stack(t).Get(name))
}

// decideOn returns the result of decide. The argument want is the resource of the name in the target, which is the
// configuration that the client should have. If the target has no such resource, want is nil.
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

// absent returns the decision about a name for which the target has no resource. The argument has is the client's
// resource. The argument known is false if the client may have a different one. The comments below state how Envoy
// reacts to the possible answers.
func (s *State) absent(t xds.Type, name string, o override, has *xds.Resource, known bool) (verb, *xds.Resource) {
	holds := has != nil || !known
	if isDynamic(t) {
		return s.absentDynamic(t, o, holds), nil
	}
	switch t {
	// Envoy applies a removal at once. For a name that it does not have, a removal means that the cluster does not
	// exist.
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
	case xds.Endpoint: // Envoy ignores a removal, and applies an empty assignment
		switch {
		case holds && s.leaves(name):
			if o.force && has != nil { // the cluster changed before its removal, and warms until it has its hosts
				return set, has
			}
		case !o.placeholder || o.force:
			return set, empty(t, name)
		}
	case xds.Secret: // Envoy ignores a removal; as a first answer it ends the wait of resources that need the secret
		if holds || o.force {
			return remove, nil
		}
	case xds.Extension:
		// Nothing is sent. After a removal, Envoy would delete the configuration of a filter that a listener still has,
		// and the filter would answer 500. Envoy unsubscribes by itself when the last listener with the filter is
		// removed. As a first answer, a removal would not help: the listener would wait for ever.
	}
	return hold, nil
}

// leaves reports whether the cluster of an assignment is about to be removed. The cluster keeps its hosts until the
// removal.
func (s *State) leaves(name string) bool {
	return s.types[xds.Cluster].subscribed && s.target.Types[xds.Cluster].Get(name) == nil
}

// mayRemove reports whether a cluster may be removed: no resource that the client has or warms can name it.
func (s *State) mayRemove(cluster string) bool {
	return s.unnamed(cluster) ||
		s.drained(xds.Listener, cluster) && s.drained(xds.Route, cluster) && s.released(cluster) && s.listenersHaveSecrets()
}

// released returns the result of drained for configurations of filters. It returns true if no such configuration exists
// and the client has not subscribed to the type.
func (s *State) released(cluster string) bool {
	if s.types[xds.Extension].subscribed || s.target.Types[xds.Extension].Len() > 0 {
		return s.drained(xds.Extension, cluster)
	}
	return true
}

// drained reports whether the client has acknowledged all resources of a type to which it has subscribed, and has no
// older version that names the given cluster or route. If the client has not subscribed, it returns true, except for a
// resuming client (claims) before EndResume.
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

// rest summarises the differences that remain between the client's state of a type and the target.
type rest struct {
	known  bool            // the other fields are computed
	moving bool            // a part of the state must still be sent, is unacknowledged, or is unknown
	others []*xds.Resource // versions other than the newest that the client has or may have
}

// restOf computes the rest of a type. Its cost grows with the number of overrides.
func (s *State) restOf(t xds.Type) rest {
	ty := &s.types[t]
	if ty.fresh || len(ty.flights) > 0 || len(ty.retry) > 0 || ty.sent != s.target.Types[t] {
		return rest{known: true, moving: true}
	}
	r := rest{known: true}
	for name, o := range ty.overrides {
		v, _ := s.decide(t, name, o)
		unanswered := o.force && t == xds.Route && s.listenerNeeds(name)
		// A resuming client may list a removed extension for ever, so a listed extension does not count.
		if v == set || v == remove || unanswered || o.claimed && t != xds.Extension {
			return rest{known: true, moving: true}
		}
		if o.refused != "" && o.have == nil && s.claims {
			// The client may have another version instead, from a response of an earlier stream that it refused in
			// part.
			return rest{known: true, moving: true}
		}
		if o.have != nil && !o.placeholder {
			r.others = append(r.others, o.have)
		}
		r.others = append(r.others, o.maybe...)
	}
	return r
}

// listenerNeeds reports whether a listener of the target needs a route configuration. Until the client has this route
// configuration, Envoy keeps an old version of the listener.
func (s *State) listenerNeeds(route string) bool {
	for l := range s.target.Types[xds.Listener].All() {
		if slices.Contains(l.Needs, xds.Ref{Type: xds.Route, Name: route}) {
			return true
		}
	}
	return false
}

// listenersHaveSecrets reports whether the client has every requested secret that a listener of the target names. Until
// then Envoy keeps an old version of the listener.
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

// decided ends a run of decisions (s.deciding). During a run, the results of restOf and openClusters do not change, so
// they are cached.
func (s *State) decided() { s.deciding, s.rests, s.opened = false, [xds.NumTypes]rest{}, opened{} }

// empty returns the placeholder for a missing assignment or route configuration. The assignment has no hosts, so that
// requests get 503. The route configuration has no virtual hosts, so that requests get 404.
func empty(t xds.Type, name string) *xds.Resource {
	var r *xds.Resource
	var err error
	if t == xds.Endpoint {
		r, err = xds.Encode(t, name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
	} else {
		r, err = xds.Encode(t, name, &routev3.RouteConfiguration{Name: name})
	}
	if err != nil { // only a name that is not UTF-8 fails, and the parser refuses such names
		panic(fmt.Sprintf("delta: empty %v: %v", t, err))
	}
	return r
}
