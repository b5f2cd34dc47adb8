package delta

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// check holds the promises about a response as it arrives.
func (p *proxy) check(r Reply) {
	for _, name := range r.Removed {
		if slices.ContainsFunc(r.Set, func(n *xds.Resource) bool { return n.Name == name }) {
			p.fail("%v %s is in both lists", r.Type, name)
		}
	}
	for i := 1; i < len(r.Set); i++ {
		if r.Set[i-1].Name >= r.Set[i].Name {
			p.fail("%v is not sorted: %s, %s", r.Type, r.Set[i-1].Name, r.Set[i].Name)
		}
	}
	if r.Type == xds.Listener || r.Type == xds.Route {
		for _, n := range r.Set { // make before break: what it names is there, and was sent its endpoints
			for _, ref := range refs(n) {
				if c := p.has[xds.Cluster][ref]; !p.dirty() && (c == nil || !p.serves[ref]) {
					p.fail("%v %s names cluster %s, which is not there", r.Type, label(n), ref)
				}
			}
		}
	}
}

// dirty says whether a cluster may be missing because it, or something together with it, was refused.
func (p *proxy) dirty() bool {
	for _, t := range []xds.Type{xds.Cluster, xds.Endpoint} {
		for r := range p.state.target.Types[t].All() {
			if poisoned(r) {
				return true
			}
		}
		for _, o := range p.state.types[t].overrides {
			if o.refused != "" || o.held && !o.claimed {
				return true
			}
		}
	}
	return false
}

// refs are the clusters that a listener or route of a history names: version "7(a,b)".
func refs(r *xds.Resource) []string {
	_, list, ok := strings.Cut(versions[r.Version], "(")
	if !ok || list == ")" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(list, ")"), ",")
}

func mentions(r *xds.Resource, name string) bool { return slices.Contains(refs(r), name) }

// agrees compares what the proxy has with what it should have.
func (p *proxy) agrees(set *manifest.Set) {
	p.t.Helper()
	for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Endpoint, xds.Route} {
		stack := set.Types[t]
		for r := range stack.All() {
			if poisoned(r) || !t.Wildcard() && !slices.Contains(p.names[t], r.Name) {
				continue
			}
			if p.timeouts && p.recorded[t][r.Name] == r.Version {
				continue // applied out of a refused response, and not recorded: Envoy claims what it no longer has
			}
			if got := p.has[t][r.Name]; got == nil || got.Version != r.Version {
				p.fail("%v: %s is not there", t, label(r))
			}
		}
		for name, got := range p.has[t] {
			want := stack.Get(name)
			if _, recorded := p.recorded[t][name]; !recorded && p.timeouts {
				continue // as above: applied, and never claimed
			}
			if want == nil && label(got) != name+"@empty" && !p.excused(t, name, set) {
				p.fail("%v: %s should not be there", t, label(got))
			}
		}
	}
	if n := p.state.Unacked(); n != 0 {
		p.fail("%d bytes are in flight at rest", n)
	}
}

// excused: a cluster may stay while a refused listener or route has a last good version that names it; so may what
// belongs to it.
func (p *proxy) excused(t xds.Type, name string, set *manifest.Set) bool {
	for _, of := range []xds.Type{xds.Listener, xds.Route} {
		for r := range set.Types[of].All() {
			if poisoned(r) && (t == xds.Cluster || t == xds.Endpoint || t == xds.Route) {
				return true
			}
		}
	}
	return false
}
