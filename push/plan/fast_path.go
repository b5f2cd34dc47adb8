package plan

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// slowReason is one reason why the fast path cannot plan an edit completely. The edit touches more than endpoint
// assignments, so it has to be planned with Begin.
type slowReason struct {
	name  string
	holds func(p *Planner, in *input.Input, e mirror.Edit) bool
	ahead bool // the assignments may be sent before the other resources
}

// These are the slow reasons for cells of the table of effects (affects.go). The fast path plans an edit in one of
// these cells completely, unless a reason of the cell holds.
var (
	slowMembers = []slowReason{
		{"ports of the service", renumbered, false},
		{"service accounts", reidentified, false},
		{"endpoints without mTLS", mtlsDisabledDiffers, false},
		{"mTLS of whole clusters", securesOtherwise, false},
		{"chains by SNI", reachedOtherwise, true},
		{"clusters and listeners", beyondAssignments, true},
	}
	slowPorts  = []slowReason{{"target ports", retargeted, true}}
	slowServed = []slowReason{{"served ports", servesAny, true}}
	slowProxy  = []slowReason{{"its proxy", bindsAgain, false}}
	slowLabels = []slowReason{{"labels", relabels, false}}
	slowOwn    = []slowReason{{"gateways' own addresses", movesGateway, true}}
)

// relabels reports whether an edit changes labels that decide about Secrets.
func relabels(p *Planner, _ *input.Input, e mirror.Edit) bool { return p.secrets.Relabelled(e) }

// fastPathFor decides the way in which an edit is planned. The result fast is true if the fast path plans the
// assignments. The result again is true if the edit has to be planned with Begin, possibly in addition to the fast
// path.
func (p *Planner) fastPathFor(in *input.Input, e mirror.Edit) (fast, again bool) {
	row := p.table[e.Key().Kind]
	for _, cell := range row {
		if cell.slow == nil {
			return false, true
		}
		for _, reason := range cell.slow {
			if !reason.holds(p, in, e) {
				continue
			}
			if !reason.ahead {
				return false, true
			}
			again = true
		}
	}
	return len(row) > 0, again || row == nil
}

// PlanEndpoints is the fast path: it plans the endpoint assignments of hosts that the edits of c touch. It uses the
// services and rules of the last plan, and plans no other resources. It may be called while a change is being planned.
// The snapshot c.New must be resolved (push/resolve). PlanEndpoints panics on a fork and after Drop.
//
// The result moved lists the proxies whose sets changed, each with the path Fast. The result rest lists the edits of c
// that the caller has to pass to Begin. The fast path may have planned the assignments of these edits already. Both
// lists may be nil. The parameter pending states that edits outside of c still wait. The plan is complete at the
// revision of c.New under three conditions: pending is false, rest is empty, and no change is being planned.
func (p *Planner) PlanEndpoints(c mirror.Change, pending bool) (moved []Moved, rest []mirror.Edit) {
	p.must("PlanEndpoints", !p.forked, "of a fork")
	p.latest = c.New
	in := p.input.Later(c.New)
	ch := &change{affected: newAffected(), in: in, was: in.Root()}
	for _, e := range c.Edits {
		fast, again := p.fastPathFor(in, e)
		if fast {
			ch.collect(p.table, []mirror.Edit{e})
		}
		if again {
			rest = append(rest, e)
		}
	}
	if !pending && p.replan == nil && len(rest) == 0 {
		p.revision = c.New.Revision()
		p.fastSteps = nil
		p.read(in)
	}
	p.fastHosts.add(ch.members)
	touched := map[*scope]bool{}
	for h, t := range ch.members {
		for s := range p.index[h] {
			if t.Has(input.EDS) {
				s.step.members[h] |= input.EDS
				touched[s] = true
			}
		}
	}
	p.replay(c.New, in, ch.members, touched)
	for _, s := range p.scopes {
		if s.read(in); touched[s] { // all scopes read the new input, so that no scope retains an old snapshot
			s.run(in)
		}
	}
	in.Sharing = nil
	for _, pl := range p.views {
		if !touched[pl.scope] {
			continue
		}
		if pl.compose(p) {
			for h := range pl.handles {
				moved = append(moved, Moved{h, Fast})
			}
		}
	}
	return moved, rest
}

// anyPlanned reports whether a predicate holds for a host of the edit. The predicate gets the input of the present
// plan, and the input of the change that is being planned. The fast path leaves both inputs unchanged.
func (p *Planner) anyPlanned(e mirror.Edit, holds func(in *input.Input, host string) bool) bool {
	inputs := []*input.Input{p.input}
	if p.replan != nil {
		inputs = append(inputs, p.replan.in)
	}
	for h := range hostsOf(e) {
		if slices.ContainsFunc(inputs, func(in *input.Input) bool { return holds(in, h) }) {
			return true
		}
	}
	return false
}

// renumbered reports whether a service of the endpoints was removed, or its ports were changed, since it was planned.
// Endpoints are found by the names of ports. So the endpoints have to change together with the service. If they changed
// first, the routes to the planned service would have no endpoints for a moment.
func renumbered(p *Planner, now *input.Input, e mirror.Edit) bool {
	return p.anyPlanned(e, func(in *input.Input, h string) bool {
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
			for r := range in.ByHost(kind, h) {
				is, still := now.Get(r.Meta().Key)
				if !still || is != r && !slices.EqualFunc(is.(*model.Service).Spec.GetPorts(), r.(*model.Service).Spec.GetPorts(), equalPorts) {
					return true
				}
			}
		}
		return false
	})
}

// reidentified reports whether the service accounts of a host's endpoints differ from the planned ones. A cluster
// accepts only the identities that it names, and would refuse a new endpoint that arrives before the cluster does.
func reidentified(p *Planner, now *input.Input, e mirror.Edit) bool {
	return p.anyPlanned(e, func(in *input.Input, h string) bool {
		namespace := e.Key().Namespace
		return !slices.Equal(input.AccountsOf(in.Snapshot, h, namespace), input.AccountsOf(now.Snapshot, h, namespace))
	})
}

// mtlsDisabledDiffers reports whether the digest of endpoints without mTLS has changed. The clusters of a host contain
// this digest.
func mtlsDisabledDiffers(p *Planner, now *input.Input, e mirror.Edit) bool {
	return p.anyPlanned(e, func(in *input.Input, h string) bool {
		return in.MTLSDisabledDiffers(now.Snapshot, h, e.Key().Namespace)
	})
}

// securesOtherwise reports whether a cluster would switch between mTLS for all of its endpoints and mTLS for none.
func securesOtherwise(p *Planner, in *input.Input, e mirror.Edit) bool {
	for h := range hostsOf(e) {
		for s := range p.index[h] {
			if s.securesOtherwise(in, h) {
				return true
			}
		}
	}
	return false
}

// reachedOtherwise reports whether an edit changes the set of clusters for which gateways have filter chains by SNI.
// While a change is being planned, it returns true for every host of such gateways. The change is planned with its own
// snapshot, so its chains cannot be compared.
func reachedOtherwise(p *Planner, in *input.Input, e mirror.Edit) bool {
	for h := range hostsOf(e) {
		for s := range p.index[h] {
			if s.hosts.Form().BySNI && (p.replan != nil || s.hosts.ReachedOtherwise(in, h)) {
				return true
			}
		}
	}
	return false
}

// movesGateway reports whether an edit changes addresses of gateways' own Pods, and endpoints of other hosts depend
// on these addresses. While a change is being planned, all addresses of gateways count, because the change may add
// dependent hosts.
func movesGateway(p *Planner, _ *input.Input, e mirror.Edit) bool {
	if sameAddresses(e) {
		return false
	}
	names := map[string]bool{}
	for h := range hostsOf(e) {
		names[h] = true
	}
	for _, s := range p.scopes {
		if s.hosts.OwnedOtherwise(names) != nil || p.replan != nil && s.hosts.OwnsAny(names) {
			return true
		}
	}
	return false
}

// sameAddresses reports whether an edit of Endpoints leaves their addresses and hostnames unchanged.
func sameAddresses(e mirror.Edit) bool {
	old, had := e.Old.(*model.Endpoints)
	now, has := e.New.(*model.Endpoints)
	return had && has && slices.Equal(old.Spec.GetHosts(), now.Spec.GetHosts()) &&
		slices.EqualFunc(old.Spec.GetEndpoints(), now.Spec.GetEndpoints(), func(a, b *model.Endpoint) bool {
			return a.GetAddress() == b.GetAddress() && a.GetHostname() == b.GetHostname()
		})
}

func equalPorts(a, b *model.ServicePort) bool { return proto.Equal(a, b) }

// beyondAssignments reports whether an edit of Endpoints changes more than assignments. For services that are resolved
// by DNS it changes clusters. For headless services it changes clusters, listeners and name tables. An edit that
// changes only the health of a headless service's endpoints changes only name tables.
func beyondAssignments(p *Planner, now *input.Input, e mirror.Edit) bool {
	return anyService(now.Snapshot, e, func(svc *model.Service) bool {
		return host.InDNS(svc) || svc.Spec.GetHeadless() && (p.namesRequested() || !healthAlone(e))
	})
}

// healthAlone reports whether an edit of Endpoints changes only the health of endpoints.
func healthAlone(e mirror.Edit) bool {
	old, had := e.Old.(*model.Endpoints)
	now, has := e.New.(*model.Endpoints)
	return had && has && samePorts(e) && slices.EqualFunc(old.Spec.GetEndpoints(), now.Spec.GetEndpoints(), func(a, b *model.Endpoint) bool {
		if a.GetHealth() != b.GetHealth() {
			a = proto.CloneOf(a)
			a.Health = b.GetHealth()
		}
		return proto.Equal(a, b)
	})
}

// namesRequested reports whether any proxy requests a name table. All scopes count, because a scope that does not see
// the host may see it once the change that is being planned is complete.
func (p *Planner) namesRequested() bool {
	for _, s := range p.scopes {
		if len(s.names) > 0 {
			return true
		}
	}
	return false
}

// retargeted reports whether the edit changes ports of endpoints of a service that names its target ports. Workloads
// listen on these ports.
func retargeted(_ *Planner, now *input.Input, e mirror.Edit) bool {
	byName := func(p *model.ServicePort) bool { return p.GetTargetName() != "" && p.GetTargetNumber() == 0 }
	return !samePorts(e) && anyService(now.Snapshot, e, func(svc *model.Service) bool {
		return slices.ContainsFunc(svc.Spec.GetPorts(), byName)
	})
}

// servesAny reports whether the edit changes addresses or ports of a ServiceEntry's endpoints, and some proxy has one
// of the old or new addresses.
func servesAny(p *Planner, _ *input.Input, e mirror.Edit) bool {
	if !restated(e) {
		return false
	}
	stated := map[string]bool{}
	for _, r := range records(e) {
		for _, end := range r.(*model.Endpoints).Spec.GetEndpoints() {
			stated[end.GetAddress()] = true
		}
	}
	for h := range p.handles {
		if h.Node.Namespace == e.Key().Namespace && slices.ContainsFunc(h.Node.Addresses, func(a string) bool { return stated[a] }) {
			return true
		}
	}
	return false
}

// anyService reports whether a predicate holds for a service of the hosts of an edit.
func anyService(s *mirror.Snapshot, e mirror.Edit, holds func(*model.Service) bool) bool {
	for h := range hostsOf(e) {
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
			for r := range s.ByHost(kind, h) {
				if holds(r.(*model.Service)) {
					return true
				}
			}
		}
	}
	return false
}
