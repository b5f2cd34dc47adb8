package proxy

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/xds"
)

// envoy is the state of a simulated Envoy and its agent. It follows measurements of a real Envoy 1.40.0 over delta ADS;
// the numbers in comments refer to the sections of that reference.
type envoy struct {
	sampled bool
	sotw    bool // the server speaks the state-of-the-world protocol

	// State that survives a stream.
	held     [xds.NumTypes]set
	subs     [xds.NumTypes]bitset // subscribed names: EDS, RDS, SDS
	used     []xds.Type           // types in the order of their first use
	prior    [xds.NumTypes]map[uint32]*version
	revision [xds.NumTypes]uint64 // highest system_version_info
	owner    string               // address for the next connection; empty: any
	dials    int                  // number of dials to configured addresses, which are used in turn
	accepted [xds.NumTypes]string // state of the world: the version_info that was acknowledged last

	// State of one stream.
	streaming    bool
	resumed      bool
	unacked      int                  // unanswered responses
	nonce        [xds.NumTypes]string // state of the world: nonce of the newest response
	asked        [xds.NumTypes]bool
	answered     [xds.NumTypes]bool
	dependencies [xds.NumTypes]dependency // answers that may still come, to names that the proxy may have
	gone         [xds.NumTypes]bitset     // names that the proxy unsubscribed: updates of them may be on their way
	waiting      [xds.NumTypes]bitset     // names that are still missing before the proxy is warm: EDS, RDS, SDS
	withheld     []pending                // CDS responses, which are acknowledged once all endpoints have arrived (1.7)
	timer        *time.Timer
	moveTo       string   // address of the owner, while the proxy is elsewhere
	coming       *session // the connection to the owner that has admitted the proxy
}

// pending is a response without an ACK.
type pending struct {
	nonce   string
	version string // state of the world: its version_info
	at      time.Time
	probes  []*Probe
}

func (s *sim) init() {
	of := func(share float64) bool { return int(float64(s.index+1)*share) > int(float64(s.index)*share) }
	if s.sampled = of(s.fleet.cfg.Sample); s.sampled {
		s.fleet.count.sampledNow.Add(1)
	}
	if s.sotw = of(s.fleet.cfg.SotW); s.sotw && s.id.View != "" {
		s.id.View += ", state of the world" // its versions are computed: the protocol has no versions of single resources
	}
}

// begin sends the first requests of a stream.
func (s *sim) begin() {
	s.owe(-s.unacked)
	s.asked, s.answered = [xds.NumTypes]bool{}, [xds.NumTypes]bool{}
	s.dependencies, s.gone, s.waiting = [xds.NumTypes]dependency{}, [xds.NumTypes]bitset{}, [xds.NumTypes]bitset{}
	s.withheld, s.nonce = nil, [xds.NumTypes]string{}
	s.streaming, s.resumed = true, len(s.used) > 0
	node, err := encodeNode(s.id, &s.fleet.cfg)
	if err != nil { // a label that is not UTF-8: the caller's error
		s.fleet.count.end("node", err.Error())
	}
	if s.session.let {
		node = nil // the node was sent when the stream was admitted
	}
	if s.resumed {
		s.resume(node)
	} else {
		s.ask(xds.Cluster, request{node: node}, nil) // 1.1: legacy wildcard, no names
	}
	s.askAgentTypes()
	s.await()
	if s.resumed {
		s.session.ping = true
		s.session.probe()
	}
}

// unnamed is the prefix of computed versions, for servers that send none.
const unnamed = "\x00sum:"

// given returns the version as the server sent it; empty for a computed one.
func (v *version) given() string {
	if len(v.text) > len(unnamed) && v.text[:len(unnamed)] == unnamed {
		return ""
	}
	return v.text
}

// ask sends a request that is not an ACK; names are the names that it subscribes to.
func (s *sim) ask(t xds.Type, r request, names bitset) {
	r.url = t.URL()
	if !slices.Contains(s.used, t) {
		s.used = append(s.used, t)
	}
	s.asked[t] = true
	s.write(int(t), r)
	if s.shape.DuplicateSubscriptions && !names.empty() {
		for index := range names.all() { // a second answer will follow one that is on its way
			s.dependencies[t].ask(index)
		}
		s.write(int(t), request{url: r.url, more: s.fleet.subscriptions(t, names)})
	}
}

func (s *sim) write(t int, r request) {
	b := r.encode()
	if s.sotw {
		r.more = s.fleet.subscriptions(xds.Type(t), s.subs[t])
		b = r.encodeSotW(s.accepted[t], s.nonce[t])
	}
	c := &s.fleet.count.types[t]
	c.requests.Add(1)
	c.bytesOut.Add(uint64(binary.BigEndian.Uint32(b[1:5])) + 5)
	s.session.send(b, r.more...)
}

// subscribe changes the subscription of a named type with one request.
func (s *sim) subscribe(t xds.Type, add, drop []uint32) {
	var r request
	var names bitset
	for _, index := range add {
		names.add(index)
		s.dependencies[t].ask(index)
		s.waiting[t].add(index)
		s.gone[t].drop(index)
	}
	for _, index := range drop {
		r.unsubscribe = append(r.unsubscribe, s.fleet.names.at(t, index).name)
		s.subs[t].drop(index)
		s.lose(t, index)
		s.gone[t].add(index)
		s.waiting[t].drop(index)
	}
	if r.more = s.fleet.subscriptions(t, names); len(r.more) > 0 || len(r.unsubscribe) > 0 {
		s.ask(t, r, names)
	}
}

// lose removes one name from the held resources.
func (s *sim) lose(t xds.Type, index uint32) {
	if id := s.held[t].get(index); id != 0 {
		s.held[t].put(index, 0)
		s.fleet.names.version(id).release()
	}
	delete(s.prior[t], index)
}

// unlearn forgets all resources of a type after a stream has ended in the middle of a response. A real Envoy receives
// whole messages, so it would still have the versions from before that response, which are no longer known here. The
// server sends the resources again.
func (s *sim) unlearn(t xds.Type) {
	s.empty(t)
	for t := range s.held {
		if s.held[t].count > 0 {
			return
		}
	}
	s.forget() // after a refused first response the next stream starts cold
}

// empty removes all held resources of a type.
func (s *sim) empty(t xds.Type) {
	for _, id := range s.held[t].all() {
		s.fleet.names.version(id).release()
	}
	s.held[t], s.prior[t], s.accepted[t] = set{}, nil, ""
}

// forget makes the next start a cold one: no resources, no subscriptions.
func (s *sim) forget() {
	for t := range xds.NumTypes {
		s.empty(t)
		s.subs[t] = nil
	}
	s.used = nil
}

// onEnd processes the end of a response: the consequences for its type, then the ACK.
func (c *session) onEnd(url, nonce, system string, size int) error {
	s, m := c.sim, c.msg
	c.msg = response{}
	now := time.Now()
	t := xds.ParseURL(url)
	if t == xds.Unknown {
		return s.endAgentType(url, nonce, m, size)
	}
	s.owe(1)
	count := &s.fleet.count.types[t]
	count.responses.Add(1)
	count.resources.Add(uint64(m.resources))
	count.removed.Add(uint64(len(m.removed)))
	count.bytesIn.Add(uint64(size))
	if s.sotw {
		s.nonce[t] = strings.Clone(nonce)
		s.omitted(t, &m)
	} else {
		s.checkResponse(t, system)
	}
	had := s.held[t].count - m.added
	for _, name := range m.removed {
		s.remove(t, name, &m)
	}
	s.checkUnused(m.unnamed)
	s.held[t].seal()
	if t.Wildcard() && had > 0 && s.held[t].count == 0 {
		s.violationOf(Emptied, t, "", fmt.Sprintf("all %d were taken away", had))
	}
	for _, p := range m.probes {
		p.got(s.index, c.arrived) // without the time in which the harness decodes it
	}
	s.answered[t] = true
	s.finish(t, &m, pending{nonce: strings.Clone(nonce), version: strings.Clone(system), at: now, probes: m.probes})
	return nil
}

// finish sends the requests that follow from a response.
func (s *sim) finish(t xds.Type, m *response, p pending) {
	switch {
	case len(m.refused) > 0:
		s.refuse(t, m, p)
	case t == xds.Cluster:
		s.follow(m)
		s.withheld = append(s.withheld, p)
	case t == xds.Listener:
		if m.needs {
			s.subscribeTo(xds.Route)
			s.subscribeTo(xds.Secret)
		}
		s.acknowledge(t, p)
	default:
		s.acknowledge(t, p)
	}
	for t := range s.held {
		s.held[t].seal()
	}
	s.settle()
}

// follow subscribes to the endpoints of new clusters, and unsubscribes from those of removed ones (1.1, 1.7).
func (s *sim) follow(m *response) {
	var add, drop []uint32
	for _, e := range m.wanted {
		if s.subs[xds.Endpoint].add(e) {
			add = append(add, e)
			continue
		}
		s.dependencies[xds.Endpoint].expect(e) // Envoy waits for them without a new request
		s.waiting[xds.Endpoint].add(e)
	}
	for e := range s.unwanted(m.dropped) {
		drop = append(drop, e)
	}
	s.subscribe(xds.Endpoint, add, drop)
	if m.needs {
		s.subscribeTo(xds.Secret)
	}
}

// unwanted iterates over the subscribed endpoints of a set that no held cluster wants. Each held cluster is read once,
// however many endpoints were dropped.
func (s *sim) unwanted(dropped bitset) iter.Seq[uint32] {
	for e := range dropped.all() {
		if !s.subs[xds.Endpoint].has(e) {
			dropped.drop(e)
		}
	}
	if !dropped.empty() {
		for _, id := range s.held[xds.Cluster].all() {
			if e := s.fleet.names.version(id).facts.eds; e != 0 {
				dropped.drop(e - 1)
			}
		}
	}
	return dropped.all()
}

// subscribeTo subscribes to exactly the routes or secrets that clusters and listeners name now.
func (s *sim) subscribeTo(t xds.Type) {
	var wanted bitset
	var add, drop []uint32
	for _, by := range []xds.Type{xds.Cluster, xds.Listener} {
		if t == xds.Route && by == xds.Cluster {
			continue
		}
		for _, id := range s.held[by].all() {
			f := s.fleet.names.version(id).facts
			names := f.secrets
			if t == xds.Route {
				names = f.routes
			}
			for _, index := range names {
				wanted.add(index)
				if s.subs[t].add(index) {
					add = append(add, index)
				}
			}
		}
	}
	for index := range s.subs[t].all() {
		if !wanted.has(index) {
			drop = append(drop, index)
		}
	}
	s.subscribe(t, add, drop)
}

// settle continues the start of the proxy as far as the requested resources have arrived.
func (s *sim) settle() {
	if s.answered[xds.Cluster] && s.waiting[xds.Endpoint].empty() && (s.waiting[xds.Secret].empty() || s.asked[xds.Listener]) {
		held := s.withheld
		s.withheld = nil
		for _, p := range held {
			s.acknowledge(xds.Cluster, p)
		}
		if !s.asked[xds.Listener] {
			s.ask(xds.Listener, request{}, nil) // 1.1: only when all clusters are warm
			s.await()
		}
	}
	if s.warm() {
		s.stopWaiting()
		if !s.resumed || s.session.pong {
			s.join()
		}
		return
	}
	if s.timer == nil {
		s.await()
	}
}

// warm reports whether all requested resources have arrived.
func (s *sim) warm() bool {
	return s.answered[xds.Cluster] && s.answered[xds.Listener] && len(s.withheld) == 0 &&
		s.waiting[xds.Endpoint].empty() && s.waiting[xds.Route].empty() && s.waiting[xds.Secret].empty()
}

// join counts the proxy as joined, and starts the behaviours that begin then.
func (s *sim) join() {
	if s.joined || !s.streaming {
		return
	}
	s.joined = true
	s.tries = 0
	f := s.fleet
	if s.resumed {
		f.count.resume.Record(time.Since(s.dialed))
	} else {
		f.count.join.Record(time.Since(s.dialed))
	}
	f.count.joined.Add(1)
	f.signal()
	if s.shape.Malformed != WellFormed {
		s.sendMalformed(s.shape.Malformed)
	}
}
