package scene

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// proxy is an Envoy as far as the protocol goes: it subscribes to what its clusters and listeners need, withholds the
// ACK of clusters until their endpoints came, acknowledges the rest, and notes what it was sent.
type proxy struct {
	state    *delta.State
	held     [xds.NumTypes]map[string]*xds.Resource
	set      [xds.NumTypes]map[string]bool // since the last expectation
	dropped  [xds.NumTypes]map[string]bool
	warming  map[string]bool // endpoints that a CDS response waits for
	withheld []string        // nonces of CDS responses that are not acknowledged yet
	asked    bool            // for listeners
	faults   []string
}

func newProxy(set *manifest.Set) *proxy {
	p := &proxy{state: delta.New(delta.Config{}, set), warming: map[string]bool{}}
	for t := range xds.NumTypes {
		p.held[t] = map[string]*xds.Resource{}
	}
	p.forget()
	p.request(delta.Request{Type: xds.Cluster})
	return p
}

// forget starts a new account of what was sent.
func (p *proxy) forget() {
	for t := range xds.NumTypes {
		p.set[t], p.dropped[t] = map[string]bool{}, map[string]bool{}
	}
}

func (p *proxy) request(r delta.Request) {
	for _, report := range p.state.Request(r, nil) {
		if report.Kind != delta.Acked {
			p.faults = append(p.faults, fmt.Sprintf("unexpected report %+v", report))
		}
	}
}

// settle takes all that may be sent now.
func (p *proxy) settle() {
	for {
		for reply, ok := p.state.Next(); ok; reply, ok = p.state.Next() {
			p.receive(reply)
		}
		if p.asked {
			return
		}
		p.asked = true // clusters are there: listeners are next
		p.request(delta.Request{Type: xds.Listener})
	}
}

func (p *proxy) receive(reply delta.Reply) {
	t := reply.Type
	var wanted, unwanted []string
	for _, r := range reply.Set {
		if slices.Contains(reply.Removed, r.Name) {
			p.faults = append(p.faults, fmt.Sprintf("%v %s is both set and removed", t, r.Name))
		}
		before := p.held[t][r.Name]
		p.held[t][r.Name] = r
		p.set[t][r.Name] = true
		delete(p.warming, r.Name)
		for _, need := range r.Needs {
			if t == xds.Cluster && before != r {
				p.warming[need.Name] = true
			}
			if before == nil {
				wanted = append(wanted, need.Name)
			}
		}
	}
	for _, name := range reply.Removed {
		if r := p.held[t][name]; r != nil {
			for _, need := range r.Needs {
				unwanted = append(unwanted, need.Name)
				delete(p.warming, need.Name)
			}
		}
		delete(p.held[t], name)
		p.dropped[t][name] = true
	}
	p.check(t, reply)
	child := map[xds.Type]xds.Type{xds.Cluster: xds.Endpoint, xds.Listener: xds.Route}[t]
	if len(wanted)+len(unwanted) > 0 {
		for _, name := range unwanted {
			delete(p.held[child], name)
		}
		p.request(delta.Request{Type: child, Subscribe: slices.Values(wanted), Unsubscribe: slices.Values(unwanted)})
	}
	if t == xds.Cluster {
		p.withheld = append(p.withheld, reply.Nonce)
	} else {
		p.request(delta.Request{Type: t, Nonce: reply.Nonce})
	}
	if len(p.warming) == 0 {
		for _, nonce := range p.withheld {
			p.request(delta.Request{Type: xds.Cluster, Nonce: nonce})
		}
		p.withheld = nil
	}
}

// check notes what a proxy must never see: a route configuration that came before the clusters it names, a listener
// removed and held at once.
func (p *proxy) check(t xds.Type, reply delta.Reply) {
	if t != xds.Route {
		return
	}
	for _, r := range reply.Set {
		for _, name := range clustersOf(r) {
			if p.held[xds.Cluster][name] == nil {
				p.faults = append(p.faults, fmt.Sprintf("route %s names cluster %s, which the proxy does not have", r.Name, name))
			}
		}
	}
}
