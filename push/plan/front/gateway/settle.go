package gateway

import (
	"cmp"
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// anySNI stands for all connections whose SNI matches no name of a chain, and for connections without SNI.
const anySNI = ""

// demand asks for the connections with some SNI names. They go to a server, or to the destination of a VirtualService's
// rule at the server.
type demand struct {
	server gateways.Server
	vs     *model.VirtualService // the VirtualService with the rule; nil without a rule
	rules  string                // the field of the rule: spec.tls or spec.tcp
	names  []string              // each once: SNI names, or anySNI alone
	// extra has further names that the server states. A chain of the demand for less specific names would get their
	// connections, if a chain of another server did not.
	extra []string
	add   func(names []string) // adds a chain to the listener
}

// demand registers a demand. Without names it asks for anySNI.
func (c *chaining) demand(d *demand) {
	if len(d.names) == 0 {
		d.names = []string{anySNI}
	}
	c.demands = append(c.demands, d)
}

// since returns the creation time by which the demand for a name takes precedence. A name that the server states is as
// old as the Gateway. For other names, which the server's wildcards merely cover, a rule must be as old, too. The same
// holds for anySNI at servers with mode PASSTHROUGH, beside which others may serve plain connections.
func (d *demand) since(name string) int64 {
	since := d.server.Gateway.Created
	if d.server.Passes() && (name == anySNI || !d.server.States(name)) {
		since = max(since, d.vs.Created)
	}
	return since
}

// settlement decides which demand gets an SNI name.
type settlement struct {
	owners map[string]*demand
	rivals map[string][]*demand // the demands for a name, in order, if there are several
}

// settle adds the chains of all demands. Each name gets one chain: Envoy refuses a listener in which two chains have
// the same name. The winner of a name is the server with the oldest demand for it (demand.since). Of the winner's
// demands for the name, the first one gets it. Each demand that loses a name has a problem.
func (c *chaining) settle() {
	s := settlement{owners: map[string]*demand{}, rivals: map[string][]*demand{}}
	for _, d := range c.demands {
		for _, name := range d.names {
			s.enter(name, d)
		}
	}
	for name, all := range s.rivals {
		s.owners[name] = winner(name, all)
	}
	s.enterStated(c.demands)
	for _, d := range c.demands {
		for _, names := range [][]string{d.names, d.extra} {
			left := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
				lost := s.owners[name] != d
				if lost && !c.quic { // the listener over TCP reports the problem
					c.lose(name, d, s.owners[name])
				}
				return lost
			})
			slices.Sort(left)
			switch {
			case len(left) == 0:
			case left[0] == anySNI:
				d.add(nil)
			default:
				d.add(left)
			}
		}
	}
}

// enter enters a demand for a name. If there are several, the caller chooses the winner.
func (s *settlement) enter(name string, d *demand) {
	first := s.owners[name]
	switch {
	case first == nil:
		s.owners[name] = d
	case s.rivals[name] == nil:
		s.rivals[name] = []*demand{first, d}
	default:
		s.rivals[name] = append(s.rivals[name], d)
	}
}

// winner returns the demand that gets a name. If two servers' demands are of the same time, a stated name precedes a
// rule's, and then the servers' order decides. The demands of a server must be adjacent.
func winner(name string, all []*demand) *demand {
	since := map[*networkingv1.Server]int64{} // of the oldest demand of each server
	for _, d := range all {
		if old, has := since[d.server.Spec()]; !has || d.since(name) < old {
			since[d.server.Spec()] = d.since(name)
		}
	}
	best := all[0]
	for _, d := range all[1:] {
		if cmp.Or(cmp.Compare(since[d.server.Spec()], since[best.server.Spec()]), cmp.Compare(d.ruled(), best.ruled()),
			gateways.Precedes(d.server.Gateway, best.server.Gateway), cmp.Compare(d.server.Index, best.server.Index)) < 0 {
			best = d
		}
	}
	return best
}

// ruled returns 1 if rules of VirtualServices state the demand's names, and 0 if the server does.
func (d *demand) ruled() int {
	if d.server.Passes() {
		return 1
	}
	return 0
}

// statedName is a name that a server states, and the demand of the server that should get its connections.
type statedName struct {
	name string
	by   *demand
}

// enterStated enters names that servers state and that no chain of their own has. Such a server has the host "*", so
// that its chain has no names, or it passes TLS through by rules for a wildcard. If Envoy would pass connections with
// the name to another server, because a chain of that server is more specific, the name gets a chain of its own.
func (s *settlement) enterStated(all []*demand) {
	var stated []statedName
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].server.Spec() == all[0].server.Spec() {
			n++
		}
		stated = append(stated, statedNames(all[:n])...)
		all = all[n:]
	}
	// A chain for a wildcard changes which server gets longer names.
	slices.SortStableFunc(stated, func(a, b statedName) int { return cmp.Compare(len(a.name), len(b.name)) })
	for _, of := range stated {
		if got := s.picked(of.name); got != nil && got.server.Spec() == of.by.server.Spec() {
			continue
		}
		of.by.extra = append(of.by.extra, of.name)
		s.enter(of.name, of.by)
		if rivals := s.rivals[of.name]; rivals != nil {
			s.owners[of.name] = winner(of.name, rivals)
		}
	}
}

// statedNames returns the names that a server states, that no demand of the server has, and that a less specific one
// covers. The parameter has all demands of the server.
func statedNames(all []*demand) (out []statedName) {
	server := all[0].server
	if !server.Passes() && !(server.TLS() && server.States("*")) {
		return nil
	}
	own := map[string]*demand{}
	for _, d := range all {
		for _, name := range d.names {
			own[name] = cmp.Or(own[name], d)
		}
	}
	covering := settlement{owners: own}
	for _, h := range server.Hosts {
		if h.Name == "*" || own[h.Name] != nil || gateways.PartialWildcard(h.Name) {
			continue
		}
		if by := covering.picked(h.Name); by != nil && (by.vs == nil || server.StatesFor(by.vs.Key.Namespace, h.Name)) {
			out = append(out, statedName{h.Name, by})
		}
	}
	slices.SortFunc(out, func(a, b statedName) int { return cmp.Compare(a.name, b.name) })
	return slices.CompactFunc(out, func(a, b statedName) bool { return a.name == b.name })
}

// picked returns the demand whose chain Envoy selects for connections with an SNI, or nil.
func (s *settlement) picked(name string) *demand {
	for pattern := range model.Covering(name) {
		if d := s.owners[pattern]; d != nil {
			return d
		}
	}
	return s.owners[anySNI]
}

// lose reports that an SNI name of a demand belongs to another demand.
func (c *chaining) lose(name string, by, winner *demand) {
	key, field, what := by.server.Gateway.Key, fmt.Sprintf("spec.servers[%d]", by.server.Index), "connections with SNI "+name
	if name == anySNI {
		what = "connections without SNI, or with any other SNI"
	}
	if by.server.Passes() {
		key, field = by.vs.Key, by.rules
	}
	of := model.OtherOf(winner.server.Gateway)
	if winner.server.Passes() {
		of = model.OtherOf(winner.vs)
	}
	c.report(key, field, what, of)
}

// report adds a problem of an object whose connections belong to another object (older), which takes precedence.
func (c *chaining) report(key model.Key, field, what string, older model.Other) {
	p := input.Problem{Key: key, Field: field, Code: problem.Duplicate, Analyzer: problem.ConflictingGateways, Severity: problem.Error}
	p.Message, p.Whole = model.Messages(key.Namespace,
		"%s at port %d of gateway workloads in namespace %s belong to %v, which takes precedence and stays in effect",
		what, c.Port, c.Key.Namespace, older)
	*c.found = append(*c.found, p)
}

// withoutPartial removes wildcards of partial labels from SNI names, for which Envoy would refuse the whole listener.
// It reports a problem of the object that states them.
func (c *chaining) withoutPartial(names []string, key model.Key, field string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		partial := gateways.PartialWildcard(name)
		if partial && !c.quic {
			*c.found = append(*c.found, input.Problem{Key: key, Field: field, Code: problem.NotSupported, Severity: problem.Error,
				Message: fmt.Sprintf("%s at port %d of gateway workloads in namespace %s: TLS supports only wildcards of whole labels "+
					"(*.example.com); this name is not served", name, c.Port, c.Key.Namespace)})
		}
		return partial
	})
}
