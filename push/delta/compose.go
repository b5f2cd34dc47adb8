package delta

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/grpc/mem"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// order is the order of responses, make before break
// (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#eventual-consistency-considerations). A cluster
// precedes its endpoints and certificates, and all of these precede resources that name the cluster. The configuration
// of a filter precedes the listeners that name it. So a new listener never runs a filter with an old configuration.
var order = [...]xds.Type{xds.Cluster, xds.Endpoint, xds.Secret, xds.Extension, xds.Listener, xds.Route}

// Next returns the next response to send. It returns false if there is no response, or if no response may be sent now.
// A returned response counts as in flight, so the caller must send it or end the stream.
func (s *State) Next() (Reply, bool) { return s.next(false) }

// Urgent returns the next response, as Next does, but only with urgent changes. Urgent changes are answers to
// subscriptions, resources of dynamic types (dynamic.go), and endpoints of the hosts in manifest.Set.FastHosts.
// Endpoints of a cluster that must itself be sent, and all other changes, are left for Next.
func (s *State) Urgent() (Reply, bool) { return s.next(true) }

// next returns the next response. Dynamic types come first, then the types in their order. If urgent is true, next
// returns only urgent changes (Urgent).
func (s *State) next(urgent bool) (Reply, bool) {
	s.urgent = urgent
	for t := range s.dynamicTypes() {
		if reply, made := s.replyOf(t); made {
			return reply, true
		}
	}
	for _, t := range order {
		if reply, made := s.replyOf(t); made {
			return reply, true
		}
	}
	// Removals of clusters that waited for listeners and routes may be sent now.
	return s.replyOf(xds.Cluster)
}

// replyOf returns the next response of one type, if there is one.
func (s *State) replyOf(t xds.Type) (Reply, bool) {
	for {
		reply, made := s.compose(t)
		if !made || !s.cfg.SotW || s.asSotW(&reply) {
			return reply, made
		}
	}
}

// change is the content of one response.
type change struct {
	set []*xds.Resource
	// If set has all resources of one stack, whole is this stack. In this case set is sorted by name, shared and
	// read-only. In all other cases whole is zero.
	whole   manifest.Stack
	removed []string
}

// compose makes the next response of one type. It returns false if nothing is left to send, or if no response of the
// type may be sent now.
func (s *State) compose(t xds.Type) (Reply, bool) {
	ty := s.typed(t)
	if !ty.subscribed {
		return Reply{}, false
	}
	s.deciding = true
	defer s.decided()
	free := s.free(t)
	due := !free && s.dependenciesDue(t) && len(ty.flights) < maxFlights
	if !free && !due {
		return s.removeOnly(t)
	}
	var c change
	var resent []string
	at := ty.sent
	switch {
	case ty.fresh:
		s.answerFirst(t, &c)
		resent = s.gather(t, &c, func(string, override) bool { return true })
		at = s.stack(t)
	case due || s.defers(t):
		resent = s.gather(t, &c, func(_ string, o override) bool { return o.force })
	default:
		if resent = s.retries(t, &c); c.empty() {
			resent = s.gather(t, &c, func(string, override) bool { return true })
			at = s.stack(t)
			resent = append(resent, s.differences(t, &c)...)
		}
	}
	if t == xds.Listener && len(c.removed) > 0 && ty.replacing(resent) {
		resent = ty.keep(&c, resent)
	}
	if c.empty() && !(ty.answer && !due) {
		if !due && !s.defers(t) {
			ty.catchUp(at, s.target.Revision)
		}
		return Reply{}, false
	}
	ty.answer = false
	return s.launch(t, c, resent, at, due), true
}

// replacing reports whether a new resource, which may replace a removed one, still waits for clusters. The parameter
// sent has the names that are about to be sent.
func (ty *typed) replacing(sent []string) bool {
	for name, o := range ty.overrides {
		if o.since != 0 && o.has() == nil && !slices.Contains(sent, name) {
			return true
		}
	}
	return false
}

// keep deletes the removals from the response c, so that they are sent later. The parameter resent has the names in c
// that have overrides (an override is the separate state of one name). keep returns resent without the removals.
func (ty *typed) keep(c *change, resent []string) []string {
	for _, name := range c.removed {
		ty.put(name, ty.current(name))
	}
	slices.Sort(c.removed)
	resent = slices.DeleteFunc(resent, func(name string) bool { return found(c.removed, name) })
	c.removed = nil
	return resent
}

// retries adds the next part of a refused response to c, and returns the names of this part that are sent.
func (s *State) retries(t xds.Type, c *change) (resent []string) {
	ty := s.typed(t)
	for len(ty.retry) > 0 && c.empty() {
		group := ty.retry[0]
		ty.retry = ty.retry[1:]
		resent = s.gather(t, c, func(name string, _ override) bool { return found(group, name) })
	}
	if len(ty.retry) == 0 {
		ty.retry = nil
	}
	return resent
}

// answerFirst adds to c the answer to the first subscribed names of a type. Only names without a resource, and names
// whose resource may not be sent yet, get an override. A joining proxy may subscribe to thousands of names.
func (s *State) answerFirst(t xds.Type, c *change) {
	ty := s.typed(t)
	ty.fresh = false
	goal := s.stack(t)
	add := func(name string, r *xds.Resource) {
		if r != nil && s.passes(t, r) {
			c.set = append(c.set, r)
		} else {
			ty.put(name, override{force: true})
		}
	}
	if len(ty.overrides) == 0 && goal.Sum().Names == ty.nameSum() { // the client requests all resources, as sidecars do
		if all := goal.Sorted(); s.allPass(t, all) {
			c.set, c.whole = all, goal
			return
		}
	}
	for _, name := range ty.names.All() {
		if _, is := ty.overrides[name]; !is {
			add(name, goal.Get(name))
		}
	}
}

// catchUp records that the client is up to date with a newer stack, because this stack has no changes for the client.
func (ty *typed) catchUp(at manifest.Stack, revision int64) {
	moved := ty.sent != at
	ty.sent, ty.sentRevision = at, revision
	if n := len(ty.flights); n > 0 {
		ty.flights[n-1].at, ty.flights[n-1].revision = at, revision
	} else {
		ty.acked, ty.ackedRevision = at, revision
	}
	if moved {
		ty.tidyAll()
	}
}

// empty reports whether the response has no content.
func (c *change) empty() bool { return len(c.set) == 0 && len(c.removed) == 0 }

// add adds the resource r for the verb "set", and a removal of the name for the verb "remove". It returns false for
// other verbs.
func (c *change) add(name string, v verb, r *xds.Resource) bool {
	switch v {
	case set:
		c.set = append(c.set, r)
	case remove:
		c.removed = append(c.removed, name)
	case hold, wait:
	}
	return v == set || v == remove
}

// dependenciesDue reports whether the client may need responses of a type before it acknowledges a response with
// clusters. Envoy acknowledges new clusters only when they have their endpoints and certificates.
func (s *State) dependenciesDue(t xds.Type) bool {
	return (t == xds.Endpoint || t == xds.Secret) && len(s.types[xds.Cluster].flights) > 0
}

// defers reports whether Urgent is running and leaves the changes of a type for Next. Urgent does not leave endpoints,
// dynamic types and first answers for Next.
func (s *State) defers(t xds.Type) bool {
	return s.urgent && t != xds.Endpoint && !isDynamic(t) && !s.types[t].answer
}

// sends returns the decision of decideOn. While Urgent runs, endpoints are restricted: sends returns "hold" unless the
// name must be answered or fastPath is true. It also returns "hold" if the cluster of the endpoints is about to change,
// because the cluster must come first.
func (s *State) sends(t xds.Type, name string, o override, want *xds.Resource) (verb, *xds.Resource) {
	if s.urgent && t == xds.Endpoint && (!o.force && !s.fastPath(name) || s.changes(name)) {
		return hold, nil
	}
	return s.decideOn(t, name, o, want)
}

// fastPath reports whether an assignment belongs to a host whose endpoints are urgent (manifest.Set.FastHosts).
func (s *State) fastPath(name string) bool {
	return found(s.target.FastHosts, name[strings.LastIndexByte(name, '|')+1:])
}

// changes reports whether a change of a cluster must be sent, because the client does not have the newest version.
func (s *State) changes(cluster string) bool {
	ty := &s.types[xds.Cluster]
	if !ty.subscribed {
		return false
	}
	has := ty.sent.Get(cluster)
	if o, is := ty.overrides[cluster]; is {
		has = o.has()
	}
	return !same(has, s.target.Types[xds.Cluster].Get(cluster))
}

// gather decides about each name with an override for which the function pick returns true, and adds the results to c.
// It returns the names that are sent, in any order.
func (s *State) gather(t xds.Type, c *change, pick func(string, override) bool) (resent []string) {
	ty, goal := s.typed(t), s.stack(t)
	for name, o := range ty.overrides {
		if !pick(name, o) {
			continue
		}
		v, r := s.sends(t, name, o, goal.Get(name))
		if c.add(name, v, r) {
			resent = append(resent, name)
		} else if waits := v == wait; waits != (o.since != 0) {
			o.since = 0
			if waits {
				o.since = s.now
			}
			ty.put(name, o)
		}
	}
	return resent
}

// differences decides about the differences between the stack ty.sent and the target, and adds the results to c. It
// returns the names that are sent and need an override.
func (s *State) differences(t xds.Type, c *change) (resent []string) {
	ty := s.typed(t)
	goal := s.stack(t)
	if ty.sent == goal {
		return nil
	}
	if (ty.sent == manifest.Stack{}) && ty.all && len(ty.overrides) == 0 && !isDynamic(t) {
		all := goal.Sorted()
		if s.allPass(t, all) {
			c.set, c.whole = all, goal
			return nil
		}
		for _, r := range all {
			if s.passes(t, r) {
				c.set = append(c.set, r)
			} else {
				ty.put(r.Name, override{since: s.now}) // gather decides whether the resource waits or is withheld
			}
		}
		return nil
	}
	for _, d := range s.cfg.Diffs.between(ty.sent, goal) {
		if _, is := ty.overrides[d.Name]; is || !ty.wants(d.Name) || same(d.Old, d.New) {
			continue
		}
		o := override{have: d.Old}
		if len(ty.flights) > 0 {
			o = ty.standing(d.Name)
		}
		v, r := s.sends(t, d.Name, o, d.New)
		if !c.add(d.Name, v, r) {
			if v == wait {
				o.since = s.now
			}
			ty.put(d.Name, o)
		} else if r != d.New {
			ty.put(d.Name, o)
			resent = append(resent, d.Name)
		}
	}
	return resent
}

// launch records a response as in flight and returns it. The parameter resent has the names of the response that have
// overrides. The parameter at is the stack that the client has after it accepts the response.
func (s *State) launch(t xds.Type, c change, resent []string, at manifest.Stack, due bool) Reply {
	ty := s.typed(t)
	if c.whole == (manifest.Stack{}) {
		slices.SortFunc(c.set, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.Sort(c.removed)
	s.goesAhead(t, c.set)
	s.serial++
	for _, name := range resent {
		o := ty.overrides[name]
		o.flying, o.now, o.force, o.placeholder, o.since = s.serial, nil, false, false, 0
		if i, ok := slices.BinarySearchFunc(c.set, name, byName); ok {
			o.now = c.set[i]
			o.placeholder = s.stack(t).Get(name) == nil
		}
		ty.put(name, o)
	}
	moved := ty.sent != at
	ty.sent, ty.sentNonce, ty.sentRevision = at, s.serial, s.target.Revision
	if moved {
		ty.tidyAll()
	}
	reply := Reply{Type: t, URL: s.url(t), Set: c.set, Removed: c.removed, Nonce: nonceText(s.serial), Revision: ty.sentRevision, Due: due}
	if !s.cfg.SotW {
		reply.Encoded, reply.Size = c.pack()
		reply.Size += overhead(&reply)
	}
	ty.flights = append(ty.flights, flight{nonce: s.serial, size: reply.Size, kept: reply.Size, set: c.set, removed: c.removed, at: at,
		revision: ty.sentRevision, since: s.now})
	s.unacked += reply.Size
	if t == xds.Cluster {
		s.unusable(c.removed)
		s.followClusters(ty.flights[len(ty.flights)-1:])
	}
	return reply
}

// pack encodes the resources, and returns their size. Streams that send the same sequence of resources share the
// encoded pieces. Therefore the resources of a whole stack are ordered by layer. In this order, resources of few
// proxies do not interrupt sequences that many proxies share.
func (c *change) pack() (encoded mem.BufferSlice, size int) {
	if c.whole == (manifest.Stack{}) {
		return xds.Pack(c.set)
	}
	layers := c.whole.Layers()
	encoded, size = xds.Pack(layers[manifest.Scope]) // most of the set
	for _, layer := range layers[manifest.Scope+1:] {
		some, n := xds.Pack(layer)
		encoded, size = append(encoded, some...), size+n
	}
	return encoded, size
}

// byName compares the name of a resource with a name.
func byName(r *xds.Resource, name string) int { return cmp.Compare(r.Name, name) }

// overhead returns an upper bound of a response's size on the wire without its resources, including gRPC's prefix, in
// bytes.
func overhead(r *Reply) int {
	n := 5 + 40 + len(r.URL) + len(r.Nonce)
	for _, name := range r.Removed {
		n += len(name) + 4
	}
	return n
}

// followClusters marks the assignments (EDS) of the clusters in the given responses, so that the assignments are sent
// again. When a cluster changes, Envoy neither uses the cluster's old endpoints nor requests its endpoints again.
func (s *State) followClusters(flights []flight) {
	eds := &s.types[xds.Endpoint]
	if !eds.subscribed || eds.fresh {
		return
	}
	for i := range flights {
		for _, r := range flights[i].set {
			for _, need := range r.Needs {
				if need.Type == xds.Endpoint && eds.wants(need.Name) {
					o := eds.current(need.Name)
					o.force = true
					eds.put(need.Name, o)
				}
			}
		}
	}
}
