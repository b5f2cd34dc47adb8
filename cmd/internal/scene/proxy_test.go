package scene

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// names is a set of names.
type names map[string]bool

// proxy is a protocol-level Envoy, by the observed behaviour of a stock Envoy 1.40. It subscribes to the resources that
// its clusters and listeners need, withholds the ACK of clusters until they are warm, subscribes to listeners only
// then, and records received responses and violations.
type proxy struct {
	sotw      bool // state of the sotw
	own       bool // its bootstrap has the cluster of its own workload, whose endpoints it asks for first of all
	state     *delta.State
	target    func() *manifest.Set
	held      [xds.NumTypes]map[string]*xds.Resource
	asked     [xds.NumTypes]bool
	wanted    [xds.NumTypes]names // asked for by name
	fresh     [xds.NumTypes]names // asked for and not answered
	doubted   [xds.NumTypes]names // claimed at another version than there was when the stream began: sent in any case
	warming   names               // clusters that changed and wait for their endpoints
	ready     names               // clusters that were warm once
	acks      [xds.NumTypes][]string
	revisions [xds.NumTypes]int64 // of the last responses
	stalled   bool
	prompt    bool            // its requests arrive before anything more is sent; else they arrive late
	outbox    []delta.Request // those that have not arrived

	set, dropped [xds.NumTypes]names // since the last expectation
	responses    [xds.NumTypes]int
	faults       []string
}

func newProxy(sotw, prompt, own bool, target func() *manifest.Set) *proxy {
	p := &proxy{sotw: sotw, prompt: prompt, own: own, target: target, warming: names{}, ready: names{}}
	for t := range xds.NumTypes {
		p.held[t] = map[string]*xds.Resource{}
	}
	p.forget()
	p.open()
	return p
}

// forget starts a new account of received resources.
func (p *proxy) forget() {
	for t := range xds.NumTypes {
		p.set[t], p.dropped[t], p.responses[t] = names{}, names{}, 0
	}
}

func (p *proxy) fault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// open starts a stream. Earlier subscriptions are repeated at once, with the held versions.
func (p *proxy) open() {
	p.state = delta.New(delta.Config{SotW: p.sotw}, p.target())
	p.state.Tick(time.Unix(1, 0))
	p.outbox = nil
	resumed, secrets := p.asked, p.wanted[xds.Secret]
	for t := range xds.NumTypes {
		p.doubted[t] = names{}
		p.wanted[t], p.fresh[t], p.acks[t], p.asked[t], p.revisions[t] = names{}, names{}, nil, false, 0
	}
	p.asked[xds.Cluster] = true
	resumed[xds.Endpoint] = resumed[xds.Endpoint] || p.own
	for _, t := range []xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route, xds.Secret, xds.Extension} {
		if t != xds.Cluster && !resumed[t] {
			continue
		}
		p.asked[t] = true
		r := delta.Request{Type: t}
		if !t.Wildcard() {
			if p.wanted[t] = p.needs(t); t == xds.Secret {
				p.wanted[t] = secrets
			}
			p.fresh[t] = names{}
			r.Subscribe = maps.Keys(maps.Clone(p.wanted[t]))
		}
		if !p.sotw {
			versions := map[string]string{}
			for name, res := range p.held[t] {
				versions[name] = res.Version
				if now := p.target().Types[t].Get(name); now == nil || now.Version != res.Version {
					p.doubted[t][name] = true
				}
			}
			r.Initial = maps.All(versions)
		}
		p.send(r)
	}
}

func (p *proxy) send(r delta.Request) {
	if p.sotw {
		r.Unsubscribe = nil
		if !r.Type.Wildcard() {
			r.Subscribe = maps.Keys(maps.Clone(p.wanted[r.Type]))
		}
	}
	if p.outbox = append(p.outbox, r); p.prompt {
		p.deliver()
	}
}

// deliver delivers pending requests, in order, and reports whether there were any.
func (p *proxy) deliver() bool {
	sent := p.outbox
	p.outbox = nil
	for _, r := range sent {
		p.arrive(r)
	}
	return len(sent) > 0
}

func (p *proxy) arrive(r delta.Request) {
	for _, report := range p.state.Request(r, nil) {
		if report.Kind != delta.Acked {
			p.fault("unexpected report %+v", report)
		}
	}
}

// needs returns the names of a type that the held clusters and listeners require.
func (p *proxy) needs(t xds.Type) names {
	all := names{}
	if t == xds.Endpoint && p.own {
		all[xds.LocalCluster] = true
	}
	for _, parent := range []xds.Type{xds.Cluster, xds.Listener} {
		for _, r := range p.held[parent] {
			for _, need := range r.Needs {
				if need.Type == t {
					all[need.Name] = true
				}
			}
		}
	}
	return all
}

// take receives all responses that may be sent now.
func (p *proxy) take() {
	p.state.Target(p.target())
	for {
		reply, ok := p.state.Next()
		switch {
		case ok:
			p.receive(reply)
		case p.deliver():
		case !p.asked[xds.Listener] && len(p.acks[xds.Cluster]) == 0 && !p.stalled:
			p.asked[xds.Listener] = true // the clusters are there
			p.send(delta.Request{Type: xds.Listener})
		default:
			at, waits := p.state.Wake()
			if !waits || p.stalled || len(p.warming) > 0 {
				return
			}
			p.state.Tick(at) // routes to clusters that do not exist are sent after a time
		}
	}
}

func (p *proxy) receive(reply delta.Reply) {
	t := reply.Type
	p.responses[t]++
	p.inspect(reply)
	for _, r := range reply.Set {
		if !t.Wildcard() && !p.wanted[t][r.Name] {
			continue
		}
		before := p.held[t][r.Name]
		p.held[t][r.Name] = r
		if !p.sotw || before == nil || before.Version != r.Version { // state of the sotw repeats
			p.set[t][r.Name] = true
		}
		delete(p.fresh[t], r.Name)
		delete(p.doubted[t], r.Name)
		switch {
		case t == xds.Endpoint:
			delete(p.warming, r.Name)
			p.ready[r.Name] = true
		case t == xds.Cluster && (before == nil || before.Version != r.Version):
			delete(p.warming, r.Name)
			if len(r.Needs) > 0 {
				p.warming[r.Name] = true
			} else {
				p.ready[r.Name] = true
			}
		}
	}
	removed := reply.Removed
	if p.sotw && t.Wildcard() {
		removed = p.missing(reply)
	}
	for _, name := range removed {
		delete(p.fresh[t], name)
		p.dropped[t][name] = true
		if t == xds.Cluster {
			delete(p.warming, name)
			delete(p.ready, name)
		}
		if t.Wildcard() {
			delete(p.held[t], name)
		}
	}
	switch t {
	case xds.Cluster:
		p.resubscribe(xds.Endpoint)
	case xds.Listener:
		p.resubscribe(xds.Route)
		p.resubscribe(xds.Extension)
	case xds.Endpoint, xds.Route, xds.Secret, xds.Extension: // these contain no names to subscribe to
	}
	p.acks[t] = append(p.acks[t], reply.Nonce)
	p.acknowledge()
}

// missing returns the names that a state-of-the-world response removes: those that it does not contain.
func (p *proxy) missing(reply delta.Reply) (gone []string) {
	for name := range p.held[reply.Type] {
		if !slices.ContainsFunc(reply.Set, func(r *xds.Resource) bool { return r.Name == name }) {
			gone = append(gone, name)
		}
	}
	return gone
}

// resubscribe subscribes to newly needed resources, and unsubscribes from unneeded ones.
func (p *proxy) resubscribe(t xds.Type) {
	now := p.needs(t)
	var added, gone []string
	for name := range now {
		if !p.wanted[t][name] {
			added = append(added, name)
			p.fresh[t][name] = true
		}
	}
	for name := range p.wanted[t] {
		if !now[name] {
			gone = append(gone, name)
			delete(p.held[t], name)
			delete(p.fresh[t], name)
		}
	}
	if len(added)+len(gone) == 0 {
		return
	}
	p.asked[t], p.wanted[t] = true, now
	slices.Sort(added)
	p.send(delta.Request{Type: t, Subscribe: slices.Values(added), Unsubscribe: slices.Values(gone)})
}

// acknowledge sends the ACKs that are due: those of clusters when all of them are warm.
func (p *proxy) acknowledge() {
	if p.stalled {
		return
	}
	for t := range xds.NumTypes {
		if t == xds.Cluster && len(p.warming) > 0 {
			continue
		}
		nonces := p.acks[t]
		p.acks[t] = nil
		for _, nonce := range nonces {
			p.send(delta.Request{Type: t, Nonce: nonce})
		}
	}
}

// inspect notes what a proxy must never be sent.
func (p *proxy) inspect(reply delta.Reply) {
	t := reply.Type
	if reply.Revision < p.revisions[t] {
		p.fault("%v goes back from revision %d to %d", t, p.revisions[t], reply.Revision)
	}
	p.revisions[t] = reply.Revision
	seen := names{}
	for _, r := range reply.Set {
		if seen[r.Name] || slices.Contains(reply.Removed, r.Name) {
			p.fault("%v %s is twice in one response", t, r.Name)
		}
		seen[r.Name] = true
		if before := p.held[t][r.Name]; before != nil && before.Version == r.Version && !p.fresh[t][r.Name] && !p.doubted[t][r.Name] && !p.warming[r.Name] && !p.sotw {
			p.fault("%v %s is sent again, at the version that is held", t, r.Name)
		}
		if !t.Wildcard() && !p.wanted[t][r.Name] && len(p.outbox) == 0 { // or it is not known yet
			p.fault("%v %s was not asked for", t, r.Name)
		}
		if t == xds.Listener || t == xds.Route {
			p.reachable(r)
		}
	}
	for _, name := range reply.Removed {
		if t != xds.Cluster && t != xds.Listener && t != xds.Secret {
			p.fault("%v %s is removed, which Envoy ignores or waits on", t, name)
		}
		if t == xds.Cluster {
			p.unused(name)
		}
	}
}

// reachable checks that the destination of a new route exists and is warm, unless no proxy knows it. Authorisation and
// authentication do not wait for that.
func (p *proxy) reachable(r *xds.Resource) {
	held := p.held[r.Type][r.Name]
	if r.Guards() || held.Guards() {
		return
	}
	for _, name := range clustersIn(r) {
		if p.target().Types[xds.Cluster].Get(name) == nil && p.held[xds.Cluster][name] == nil || held.Names(name) {
			continue
		}
		if !p.ready[name] {
			p.fault("%v %s names cluster %s, which the proxy does not have, or not warm", r.Type, r.Name, name)
		}
	}
}

// unused checks that nothing routes to a cluster that is being removed, unless the configuration deliberately does so.
func (p *proxy) unused(cluster string) {
	for _, t := range []xds.Type{xds.Listener, xds.Route} {
		for name, r := range p.held[t] {
			if now := p.target().Types[t].Get(name); slices.Contains(clustersIn(r), cluster) && (now == nil || now.Version != r.Version) {
				p.fault("cluster %s is removed while %v %s names it", cluster, t, name)
			}
		}
	}
}

// finish compares the held resources with the expected ones, after everything has settled.
func (p *proxy) finish(set *manifest.Set) []string {
	if len(p.warming) > 0 {
		p.fault("clusters wait for endpoints that never came: %v", slices.Sorted(maps.Keys(p.warming)))
	}
	for t := range xds.NumTypes {
		if len(p.fresh[t]) > 0 && t != xds.Secret && t != xds.Extension {
			p.fault("%v was asked for and never answered: %v", t, slices.Sorted(maps.Keys(p.fresh[t])))
		}
		should := map[string]*xds.Resource{}
		for r := range set.Types[t].All() {
			if t.Wildcard() || p.wanted[t][r.Name] {
				should[r.Name] = r
			}
		}
		for name, r := range p.held[t] {
			switch want := should[name]; {
			case want == nil && t.Wildcard():
				p.fault("%v %s is held and should not be", t, name)
			case want != nil && want.Version != r.Version:
				p.fault("%v %s is held at another version than it should be", t, name)
			}
			delete(should, name)
		}
		for name := range should {
			p.fault("%v %s should be held and is not", t, name)
		}
	}
	return p.faults
}
