package delta

import (
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// check verifies the promises for a response when it arrives.
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
		for _, n := range r.Set { // make before break: each newly named cluster exists and was sent its endpoints
			for _, ref := range refs(n) {
				if c := p.has[xds.Cluster][ref]; (c == nil || !p.serves[ref]) && !p.dirty() && !p.excusedNow(n) && !mentions(p.has[r.Type][n.Name], ref) {
					p.fail("%v %s names cluster %s, which is not there", r.Type, label(n), ref)
				}
			}
		}
	}
}

// excusedNow reports whether a listener or route may name a cluster that does not serve: because it authorises, or
// because it has waited long enough.
func (p *proxy) excusedNow(n *xds.Resource) bool {
	return p.late[n] || n.Guards() || p.has[n.Type][n.Name].Guards()
}

// checkCredit verifies the limits of unacknowledged bytes.
func (p *proxy) checkCredit(reply Reply) {
	unread := 0
	for _, r := range p.down {
		if !r.Due {
			unread += r.Size
		}
	}
	if credit := p.state.cfg.Credit; !reply.Due && unread >= credit {
		p.fail("%v was sent with %d bytes not read", reply.Type, unread)
	}
	flights := p.state.typed(reply.Type).flights
	if reply.Type != xds.Cluster {
		if len(flights) > 1 && !reply.Due {
			p.fail("%d of %v in flight", len(flights), reply.Type)
		}
		return
	}
	sizes := 0
	var largest [2]int
	for _, f := range flights {
		sizes += f.kept
		if f.kept > largest[0] {
			largest[0], largest[1] = f.kept, largest[0]
		} else {
			largest[1] = max(largest[1], f.kept)
		}
	}
	if newest := flights[len(flights)-1]; newest.kept > 120 && sizes-largest[0]-largest[1] >= p.state.cfg.Credit {
		p.fail("%d bytes of clusters in flight, two responses aside", sizes-largest[0]-largest[1])
	}
}

// checkWaits records the resources that are sent because they have waited long enough for their clusters.
func (p *proxy) checkWaits(reply Reply) {
	if reply.Type != xds.Listener && reply.Type != xds.Route {
		return
	}
	for _, n := range reply.Set {
		key := n.Type.String() + n.Name
		if n != p.state.target.Types[n.Type].Get(n.Name) {
			continue
		}
		if since, is := p.waits[key]; is && p.clock.Sub(since) >= Patience || !p.state.types[xds.Cluster].subscribed {
			p.late[n] = true
		}
		delete(p.waits, key)
	}
}

// noteWaits records since when listeners and routes are waiting to be sent.
func (p *proxy) noteWaits(set *manifest.Set) {
	for _, t := range []xds.Type{xds.Listener, xds.Route} {
		ty := &p.state.types[t]
		for want := range set.Types[t].All() {
			key := t.String() + want.Name
			o := ty.overrideOf(want.Name, ty.sent)
			if _, is := p.waits[key]; len(ty.flights) == 0 && (!ty.wants(want.Name) || same(o.has(), want) || o.refused == want.Version) {
				delete(p.waits, key)
			} else if !is {
				p.waits[key] = p.clock
			}
		}
	}
}

// checkLeft verifies that only resources that wait for their clusters are unsent, and not for too long; resources that
// authorise never wait.
func (p *proxy) checkLeft(set *manifest.Set) {
	for _, t := range []xds.Type{xds.Listener, xds.Route} {
		ty := &p.state.types[t]
		if !ty.subscribed || len(ty.flights) > 0 || p.state.unread() >= p.state.cfg.Credit {
			continue
		}
		for want := range set.Types[t].All() {
			_, is := p.waits[t.String()+want.Name]
			if o := ty.overrides[want.Name]; is && (want.Guards() || o.since == 0 || p.clock.Sub(time.Unix(0, o.since)) >= Patience) {
				p.fail("%v %s is not sent", t, label(want))
			}
			if is && len(p.state.types[xds.Cluster].flights) == 0 && !slices.ContainsFunc(refs(want), func(c string) bool { return !p.serves[c] }) && !p.dirty() {
				p.fail("%v %s waits for nothing", t, label(want))
			}
		}
	}
}

// dirty reports whether a cluster may be missing because it, or another resource of its response, was refused and the
// server may not know it yet.
func (p *proxy) dirty() bool {
	if slices.ContainsFunc(slices.Concat(p.up, p.held), func(r Request) bool { return r.Failed }) {
		return true
	}
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

// refs returns the clusters that a listener or route of a history names: its version has the form "7(a,b)".
func refs(r *xds.Resource) []string {
	_, list, ok := strings.Cut(versions[r.Version], "(")
	if !ok || list == ")" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(list, ")"), ",")
}

func mentions(r *xds.Resource, name string) bool { return r != nil && slices.Contains(refs(r), name) }

// agrees compares the proxy's resources with the expected ones.
func (p *proxy) agrees(set *manifest.Set) {
	p.t.Helper()
	for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Endpoint, xds.Route} {
		stack := set.Types[t]
		for r := range stack.All() {
			if poisoned(r) || !t.Wildcard() && !slices.Contains(p.names[t], r.Name) || p.fellBack(t, r) {
				continue
			}
			if p.timeouts && p.recorded[t][r.Name] == r.Version {
				continue // applied from a refused response and not recorded: Envoy does not claim it
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

// fellBack reports whether the client has the previous version of a listener or route because it refused a cluster that
// the resource names.
func (p *proxy) fellBack(t xds.Type, r *xds.Resource) bool {
	o := p.state.types[t].overrides[r.Name]
	return o.refused == r.Version && mentions(r, o.lacks) && poisoned(p.state.target.Types[xds.Cluster].Get(o.lacks))
}

// excused reports whether a cluster may still exist because the last accepted version of a refused listener or route
// names it; the same holds for the cluster's dependencies.
func (p *proxy) excused(t xds.Type, name string, set *manifest.Set) bool {
	for _, of := range []xds.Type{xds.Listener, xds.Route} {
		for r := range set.Types[of].All() {
			if (poisoned(r) || p.fellBack(of, r)) && (t == xds.Cluster || t == xds.Endpoint || t == xds.Route) {
				return true
			}
		}
	}
	return false
}
