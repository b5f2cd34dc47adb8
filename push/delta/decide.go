package delta

import (
	"fmt"
	"slices"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// verb is what to do about one name.
type verb uint8

const (
	hold verb = iota
	set
	remove
	wait // for clusters: see awaits
)

// decide says what has to be sent about a name, given what the client has of it.
func (s *State) decide(t xds.Type, name string, o override) (verb, *xds.Resource) {
	has, known := o.has(), !o.held || o.flying != 0
	stack := s.stack(t)
	want := stack.Get(name)
	switch {
	case want == nil && stack.Pending(name):
		return hold, nil // what the client has of it stands, and it waits where it has nothing
	case want == nil:
		return s.absent(t, name, o, has, known)
	case isDynamic(t) && want.Version == s.dynamicOf(t).refused:
		return hold, nil
	case want.Version == o.refused || !same(want, has) && s.withholds(want):
		if o.force && has != nil {
			return set, has // the last good version stands
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

// absent is decide for a name that there is no resource of. What Envoy makes of each answer is in the case.
func (s *State) absent(t xds.Type, name string, o override, has *xds.Resource, known bool) (verb, *xds.Resource) {
	holds := has != nil || !known
	if isDynamic(t) {
		return s.absentDynamic(t, o, holds), nil
	}
	switch t {
	case xds.Cluster: // a removal is obeyed at once; of an unknown name it is the answer "there is none"
		if holds && s.mayRemove(name) || !holds && o.force {
			return remove, nil
		}
	case xds.Listener:
		if holds || o.force {
			return remove, nil
		}
	case xds.Route: // a removal is ignored where the route is in use, and holds up a listener that waits for it for ever
		switch {
		case !holds && o.force || o.placeholder && o.force:
			return set, empty(t, name)
		case holds && !o.placeholder && s.drained(xds.Listener, name):
			return remove, nil
		}
	case xds.Endpoint: // a removal is ignored, an empty assignment is obeyed
		switch {
		case holds && s.leaves(name):
			if o.force && has != nil { // it changed before it left: it warms until it has its hosts
				return set, has
			}
		case !o.placeholder || o.force:
			return set, empty(t, name)
		}
	case xds.Secret: // a removal is ignored; as a first answer it ends the wait of what needs the secret
		if holds || o.force {
			return remove, nil
		}
	case xds.Extension:
		// A removal takes its configuration from a filter that a listener still has, which then answers 500; Envoy unsubscribes with the last of
		// them. As a first answer it would end Envoy's own waiting, but not the listener's: that waits for ever (push/serve TestEnvoyDiscoversFilters).
	}
	return hold, nil
}

// leaves says whether the cluster of an assignment is about to be removed: until then its hosts are left alone.
func (s *State) leaves(name string) bool {
	return s.types[xds.Cluster].subscribed && s.target.Types[xds.Cluster].Get(name) == nil
}

// mayRemove says whether nothing that the client holds, or makes ready to use, can name a cluster any more.
func (s *State) mayRemove(cluster string) bool {
	return s.unnamed(cluster) ||
		s.drained(xds.Listener, cluster) && s.drained(xds.Route, cluster) && s.released(cluster) && s.listenersHaveSecrets()
}

// released is drained for configurations of filters. A client that has none is never asked to wait for a subscription to them.
func (s *State) released(cluster string) bool {
	if s.types[xds.Extension].subscribed || s.target.Types[xds.Extension].Len() > 0 {
		return s.drained(xds.Extension, cluster)
	}
	return true
}

// drained says whether the client has acknowledged all that there is of a type and all that it asked for, and holds no other version that names the
// given cluster or route.
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

// rest is what a client has of a type beside the newest versions of the resources that exist.
type rest struct {
	known  bool
	moving bool            // some of it is to be sent, or not acknowledged, or not known
	others []*xds.Resource // versions that are not the newest
}

// restOf costs as much as there are overrides.
func (s *State) restOf(t xds.Type) rest {
	ty := &s.types[t]
	if ty.fresh || len(ty.flights) > 0 || len(ty.retry) > 0 || ty.sent != s.target.Types[t] {
		return rest{known: true, moving: true}
	}
	r := rest{known: true}
	for name, o := range ty.overrides {
		v, _ := s.decide(t, name, o)
		unanswered := o.force && t == xds.Route && s.listenerNeeds(name)
		// what is held of an extension that is gone may stay for ever
		if v == set || v == remove || unanswered || o.claimed && t != xds.Extension {
			return rest{known: true, moving: true}
		}
		if o.refused != "" && o.have == nil && s.claims {
			return rest{known: true, moving: true} // what it has instead may be from an earlier stream, where it refused what came with it
		}
		if o.have != nil && !o.placeholder {
			r.others = append(r.others, o.have)
		}
		r.others = append(r.others, o.maybe...)
	}
	return r
}

// listenerNeeds says whether a listener asks for a route: while that is not answered a new version of the listener waits, and the old one serves.
func (s *State) listenerNeeds(route string) bool {
	for l := range s.target.Types[xds.Listener].All() {
		if slices.Contains(l.Needs, xds.Ref{Type: xds.Route, Name: route}) {
			return true
		}
	}
	return false
}

// listenersHaveSecrets says whether no listener waits for a secret that the client asked for, in the same way.
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

// decided ends a time in which many names are decided about and nothing changes that drained hangs on: that is found out once,
// and not for each of them.
func (s *State) decided() { s.deciding, s.rests, s.opened = false, [xds.NumTypes]rest{}, opened{} }

// empty is the placeholder for a resource that does not exist: no hosts (503), no virtual hosts (404).
func empty(t xds.Type, name string) *xds.Resource {
	var r *xds.Resource
	var err error
	if t == xds.Endpoint {
		r, err = xds.Encode(t, name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
	} else {
		r, err = xds.Encode(t, name, &routev3.RouteConfiguration{Name: name})
	}
	if err != nil { // a name that is not UTF-8; the walker does not let it in
		panic(fmt.Sprintf("delta: empty %v: %v", t, err))
	}
	return r
}
