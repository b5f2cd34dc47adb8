package delta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// proxy is a model of Envoy: it behaves as measured with Envoy, in the order of messages.
type proxy struct {
	t     *testing.T
	sotw  bool
	rnd   func(n int) int
	trace []string

	state    *State
	down     []Reply // in flight to the proxy
	up       []Request
	opened   [xds.NumTypes]bool
	has      [xds.NumTypes]map[string]*xds.Resource // applied
	recorded [xds.NumTypes]map[string]string        // a reconnecting proxy claims these versions
	names    [xds.NumTypes][]string
	warm     map[string]bool // clusters that have received endpoints since their last change
	serves   map[string]bool // clusters that have been warm at least once
	held     []Request       // ACKs of clusters, until all are warm
	sets     [xds.NumTypes]string
	pgv      bool               // refuses whole responses
	first    [xds.NumTypes]bool // no resource of the type has arrived on this stream yet

	clustered bool // a response with clusters has arrived, on any stream

	clock time.Time
	late  map[*xds.Resource]bool // listeners and routes that have waited long enough for their clusters
	waits map[string]time.Time   // when listeners and routes became ready to be sent, by type and name

	timeouts bool // a cluster may have to wait for its endpoints: the stream was cut, or they were refused

	seen [xds.NumTypes]map[string]*xds.Resource // each resource that was in any response
}

func newProxy(t *testing.T, sotw bool, set *manifest.Set, rnd func(int) int) *proxy {
	p := &proxy{t: t, sotw: sotw, rnd: rnd, warm: map[string]bool{}, serves: map[string]bool{}, clock: time.Unix(1000, 0)}
	for i := range p.has {
		p.has[i], p.recorded[i], p.seen[i] = map[string]*xds.Resource{}, map[string]string{}, map[string]*xds.Resource{}
	}
	p.connect(set)
	return p
}

func (p *proxy) note(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf(format, args...))
}

func (p *proxy) fail(format string, args ...any) {
	p.t.Helper()
	var flights, overrides []string
	for _, t := range order {
		for _, f := range p.state.types[t].flights {
			flights = append(flights, fmt.Sprintf("%v %d set %v removed %v", t, f.nonce, labels(f.set), f.removed))
		}
		for name, o := range p.state.types[t].overrides {
			overrides = append(overrides, fmt.Sprintf("%v %s have %v held %v force %v refused %s flying %d", t, name, o.have != nil, o.held, o.force, o.refused, o.flying))
		}
	}
	p.t.Fatalf("%s\nstate of the world %v, open %v, in flight %v, on the way %d down %d up %d held, warm %v, overrides %q, events:\n%s", fmt.Sprintf(format, args...), p.sotw, p.state.openClusters(), flights, len(p.down), len(p.up), len(p.held), p.warm, overrides, strings.Join(p.trace[max(0, len(p.trace)-120):], "\n"))
}

// connect opens a stream, the first or a later one: it requests all types in the order of first use, with the recorded
// versions.
func (p *proxy) connect(set *manifest.Set) {
	p.state = New(Config{SotW: p.sotw, Credit: 600}, set)
	p.state.Tick(p.clock)
	p.down, p.up, p.held, p.waits, p.late = nil, nil, nil, map[string]time.Time{}, map[*xds.Resource]bool{}
	was := p.opened
	for t := range p.first {
		p.first[t] = true
	}
	p.opened = [xds.NumTypes]bool{}
	if len(p.warming()) == 0 { // otherwise Envoy requests no clusters until they are warm
		p.ask(xds.Cluster, nil, nil)
	}
	for _, t := range []xds.Type{xds.Endpoint, xds.Listener, xds.Route} {
		if was[t] {
			p.ask(t, p.names[t], nil)
		}
	}
	p.note("connect: %d clusters held", len(p.has[xds.Cluster]))
}

// ask sends a request; the first one of a type contains the recorded versions.
func (p *proxy) ask(t xds.Type, subscribe, unsubscribe []string) {
	r := Request{Type: t, Subscribe: slices.Values(slices.Clone(subscribe)), Unsubscribe: slices.Values(slices.Clone(unsubscribe))}
	if !p.opened[t] {
		known := maps.Clone(p.recorded[t])
		r.Initial = func(yield func(string, string) bool) {
			for n, v := range known {
				if !yield(n, v) {
					return
				}
			}
		}
	}
	if p.sotw {
		r.Subscribe, r.Initial, r.Version = slices.Values(slices.Clone(p.names[t])), nil, p.sets[t]
	}
	p.opened[t] = true
	p.up = append(p.up, r)
}

func (p *proxy) want(t xds.Type, names []string) {
	slices.Sort(names)
	var added, gone []string
	for _, n := range names {
		if !slices.Contains(p.names[t], n) {
			added = append(added, n)
		}
	}
	for _, n := range p.names[t] {
		if !slices.Contains(names, n) {
			gone = append(gone, n)
			delete(p.recorded[t], n)
		}
	}
	p.names[t] = names
	if len(added)+len(gone) > 0 {
		p.ask(t, added, gone)
	}
}

func poisoned(r *xds.Resource) bool { return strings.Contains(string(r.Body()), "poison") }

// apply applies a response and answers it.
func (p *proxy) apply(r Reply) {
	t := r.Type
	p.check(r)
	resync := p.sotw && p.first[t] // the server cannot know the previous resources of a state-of-the-world client
	p.first[t] = false
	whole := t.Wildcard() && p.sotw
	if whole {
		for name := range p.has[t] {
			if !slices.ContainsFunc(r.Set, func(n *xds.Resource) bool { return n.Name == name }) {
				r.Removed = append(r.Removed, name)
			}
		}
	}
	ack := Request{Type: t, Nonce: r.Nonce}
	var bad []string
	for _, n := range r.Set {
		if poisoned(n) {
			bad = append(bad, n.Name)
		}
	}
	if len(bad) > 0 {
		ack.Failed, ack.Error = true, "something is wrong"
		if t.Wildcard() && !p.pgv {
			ack.Error = fmt.Sprintf("Error adding/updating %s(s) %s: why\n", t.Noun(), strings.Join(bad, ": why\n"))
		}
	}
	for _, n := range r.Set {
		if poisoned(n) || len(bad) > 0 && (p.pgv || !t.Wildcard() && p.rnd(2) == 0) {
			continue
		}
		p.accept(n, len(bad) == 0)
	}
	if len(bad) == 0 || !p.pgv {
		for _, name := range r.Removed {
			p.remove(t, name, resync)
		}
	}
	if len(bad) == 0 && whole {
		p.sets[t] = r.Version
	}
	if p.sotw {
		ack.Version = p.sets[t]
	}
	p.note("proxy: %v %s set %v removed %v bad %v", t, r.Nonce, labels(r.Set), r.Removed, bad)
	p.follow()
	ack.Subscribe = slices.Values(slices.Clone(p.names[t]))
	if !p.sotw {
		ack.Subscribe = nil
	}
	if t == xds.Cluster {
		p.clustered = true
		p.hold(ack)
	} else {
		p.up = append(p.up, ack)
	}
	p.release()
}

func (p *proxy) accept(n *xds.Resource, recorded bool) {
	t := n.Type
	if !t.Wildcard() && !slices.Contains(p.names[t], n.Name) {
		return
	}
	if recorded {
		p.recorded[t][n.Name] = n.Version
	}
	switch t {
	case xds.Cluster:
		if old := p.has[t][n.Name]; old == nil || old.Version != n.Version {
			p.warm[n.Name] = len(n.Needs) == 0 && !n.WarmsUnseen
		}
	case xds.Endpoint:
		if c := p.has[xds.Cluster][n.Name]; c == nil || !c.WarmsUnseen {
			p.warm[n.Name] = true
		}
	case xds.Listener, xds.Route, xds.Secret, xds.Extension: // no cluster waits for these here
	}
	if p.warm[n.Name] && t != xds.Listener && t != xds.Route {
		p.serves[n.Name] = true
	}
	p.has[t][n.Name] = n
}

func (p *proxy) remove(t xds.Type, name string, resync bool) {
	delete(p.recorded[t], name)
	if t == xds.Endpoint || t == xds.Route {
		return // ignored
	}
	if t == xds.Cluster && !resync && !(p.sotw && p.dirty()) {
		for _, of := range []xds.Type{xds.Listener, xds.Route} {
			for _, r := range p.has[of] {
				if p.has[t][name] != nil && mentions(r, name) && p.uses(r) {
					p.fail("cluster %s was removed while %v %s names it", name, of, label(r))
				}
			}
		}
	}
	delete(p.has[t], name)
	if t == xds.Cluster {
		delete(p.serves, name)
		delete(p.warm, name)
	}
}

// uses reports whether the server may know of a listener, or of a route that such a listener names. After a reconnect
// it does not know of resources that were applied from a refused response.
func (p *proxy) uses(r *xds.Resource) bool {
	if _, recorded := p.recorded[r.Type][r.Name]; p.timeouts && !recorded {
		return false
	}
	if r.Type == xds.Listener {
		return true
	}
	for _, l := range p.has[xds.Listener] {
		if p.uses(l) && slices.Contains(l.Needs, xds.Ref{Type: r.Type, Name: r.Name}) {
			return true
		}
	}
	return false
}

// follow subscribes to the dependencies of clusters and listeners, once the first of these exist.
func (p *proxy) follow() {
	var eds, rds []string
	for _, c := range p.has[xds.Cluster] {
		for _, n := range c.Needs {
			eds = append(eds, n.Name)
		}
	}
	for _, l := range p.has[xds.Listener] {
		for _, n := range l.Needs {
			if !slices.Contains(rds, n.Name) {
				rds = append(rds, n.Name)
			}
		}
	}
	p.want(xds.Endpoint, eds)
	p.want(xds.Route, rds)
	for t, names := range map[xds.Type][]string{xds.Endpoint: eds, xds.Route: rds} {
		maps.DeleteFunc(p.has[t], func(n string, _ *xds.Resource) bool { return !slices.Contains(names, n) })
	}
}

// hold keeps an ACK of clusters until all are warm. A state-of-the-world client then sends one answer: to the newest
// response, with the newest accepted version and the newest error.
func (p *proxy) hold(ack Request) {
	if n := len(p.held); p.sotw && n > 0 {
		if !ack.Failed {
			ack.Failed, ack.Error = p.held[n-1].Failed, p.held[n-1].Error
		}
		p.held = p.held[:n-1]
	}
	p.held = append(p.held, ack)
}

// warming returns the clusters that are not warm.
func (p *proxy) warming() (all []string) {
	for name := range p.has[xds.Cluster] {
		if !p.warm[name] {
			all = append(all, name)
		}
	}
	return all
}

// release sends the ACKs of clusters if all are warm, and then requests listeners.
func (p *proxy) release() {
	if len(p.warming()) > 0 {
		return
	}
	if !p.opened[xds.Cluster] {
		p.ask(xds.Cluster, nil, nil)
	}
	p.up = append(p.up, p.held...)
	if p.clustered && !p.opened[xds.Listener] {
		p.ask(xds.Listener, nil, nil)
	}
	p.held = nil
}

// step makes one random event; false if none is possible.
func (p *proxy) step(set *manifest.Set) bool {
	switch p.rnd(3) {
	case 0:
		p.clock = p.clock.Add(time.Duration(p.rnd(20)) * 10 * time.Millisecond)
		p.state.Tick(p.clock)
		p.state.Target(set)
		p.noteWaits(set)
		next, urgent := p.state.Next, p.rnd(3) == 0
		if urgent {
			next = p.state.Urgent
		}
		reply, ok := next()
		if ok {
			p.checkUrgent(reply, urgent)
			p.note("sent: %v %s set %v removed %v", reply.Type, reply.Nonce, labels(reply.Set), reply.Removed)
			p.checkCredit(reply)
			p.checkWaits(reply)
			p.down = append(p.down, reply)
		} else if !urgent {
			p.checkLeft(set)
		}
		return ok
	case 1:
		if len(p.down) > 0 {
			r := p.down[0]
			p.down = p.down[1:]
			p.apply(r)
			return true
		}
	case 2:
		if len(p.up) > 0 {
			r := p.up[0]
			p.up = p.up[1:]
			p.note("server: %v nonce %s failed %v", r.Type, r.Nonce, r.Failed)
			p.state.Request(r, nil)
			return true
		}
	}
	return false
}

// rest runs until no message is left, then advances the time so that waiting for endpoints ends
// (initial_fetch_timeout).
func (p *proxy) rest(set *manifest.Set) {
	for round := range 12 {
		for idle := 0; idle < 60; idle++ {
			if p.step(set) {
				idle = 0
			}
		}
		p.clock = p.clock.Add(Patience)
		p.state.Tick(p.clock)
		if round == 0 {
			p.state.EndResume()
			continue
		}
		for _, name := range p.warming() {
			if !p.timeouts && !p.has[xds.Cluster][name].WarmsUnseen {
				p.fail("cluster %s waits for its endpoints in vain", name)
			}
			p.warm[name], p.serves[name] = true, true
		}
		p.release()
	}
}

func labels(set []*xds.Resource) (all []string) {
	for _, r := range set {
		all = append(all, label(r))
	}
	return all
}
