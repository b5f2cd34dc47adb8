package plan

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// slowReason is one reason for which an edit cannot be planned by the endpoint fast path alone: it touches more than assignments, so it
// has to come again with Begin.
type slowReason struct {
	name  string
	holds func(p *Planner, in *input.Input, e mirror.Edit) bool
	ahead bool // the assignments may be sent before what else it touches
}

// The reasons of the cells of the table of effects that the fast path can plan.
var (
	slowMembers = []slowReason{
		{"ports of the service", renumbered, false},
		{"service accounts", reidentified, false},
		{"endpoints without mTLS", mtlsDisabledDiffers, false},
		{"mTLS of whole clusters", securesOtherwise, false},
		{"clusters and listeners", beyondAssignments, true},
	}
	slowPorts  = []slowReason{{"target ports", retargeted, true}}
	slowServed = []slowReason{{"served ports", servesAny, true}}
	slowProxy  = []slowReason{{"its proxy", bindsAgain, false}}
	slowLabels = []slowReason{{"labels", func(p *Planner, _ *input.Input, e mirror.Edit) bool { return p.secrets.Relabelled(e) }, false}}
)

// judge says what the fast path does with an edit: whether it plans assignments because of it, and whether the edit touches more than that
// and has to come again.
func (p *Planner) judge(in *input.Input, e mirror.Edit) (fast, again bool) {
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

// PlanEndpoints is the fast path: it plans endpoint assignments of hosts as they were last planned, and nothing else. It returns
// the edits that touch more than that, by the table of effects, and so have to come again with Begin.
// Where nothing else is pending or being planned, all that is planned is complete at the snapshot's revision afterwards.
func (p *Planner) PlanEndpoints(c mirror.Change, pending bool) (moved []Moved, rest []mirror.Edit) {
	p.must("PlanEndpoints", true, "")
	p.latest = c.New
	in := p.input.Later(c.New)
	ch := &change{dirt: newDirt(), in: in, was: in.Root()}
	for _, e := range c.Edits {
		fast, again := p.judge(in, e)
		if fast {
			ch.collect(p.table, []mirror.Edit{e})
		}
		if again {
			rest = append(rest, e)
		}
	}
	if !pending && p.replan == nil && len(rest) == 0 {
		p.revision = c.New.Revision()
		p.replayed = nil
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
		if s.read(in); touched[s] { // the others follow too, or they would hold old snapshots
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

// anyPlanned says whether something holds for a host of an edit, by what is planned, or by what is being planned in the background: the
// fast path leaves both as they are.
func (p *Planner) anyPlanned(e mirror.Edit, holds func(in *input.Input, host string) bool) bool {
	inputs := []*input.Input{p.input}
	if p.replan != nil {
		inputs = append(inputs, p.replan.in)
	}
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			if slices.ContainsFunc(inputs, func(in *input.Input) bool { return holds(in, h) }) {
				return true
			}
		}
	}
	return false
}

// renumbered says whether a service of the endpoints is gone, or has other ports, since it was planned. Endpoints are
// found by the names of ports, and routes still lead to them: they go together with the service, or there would be none
// in between.
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

// reidentified says whether a host of the endpoints has other service accounts than were planned. Clusters believe those
// they name alone, and would refuse a new endpoint that comes before they do.
func reidentified(p *Planner, now *input.Input, e mirror.Edit) bool {
	return p.anyPlanned(e, func(in *input.Input, h string) bool {
		return !slices.Equal(input.AccountsOf(in.Snapshot, h, e.Key().Namespace), input.AccountsOf(now.Snapshot, h, e.Key().Namespace))
	})
}

// mtlsDisabledDiffers says whether the digest of endpoints without mTLS, which is a part of the clusters of a host, is another one.
func mtlsDisabledDiffers(p *Planner, now *input.Input, e mirror.Edit) bool {
	return p.anyPlanned(e, func(in *input.Input, h string) bool {
		return in.MTLSDisabledDiffers(now.Snapshot, h, e.Key().Namespace)
	})
}

// securesOtherwise says whether a cluster of the endpoints speaks mTLS to all of them or to none, and would change that.
func securesOtherwise(p *Planner, in *input.Input, e mirror.Edit) bool {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			for s := range p.index[h] {
				if s.securesOtherwise(in, h) {
					return true
				}
			}
		}
	}
	return false
}

func equalPorts(a, b *model.ServicePort) bool { return proto.Equal(a, b) }

// beyondAssignments says whether an edit of endpoints changes more than assignments: clusters of services that are
// resolved by DNS; of headless services clusters and listeners, which do not read the health of endpoints, and names,
// which do.
func beyondAssignments(p *Planner, now *input.Input, e mirror.Edit) bool {
	return anyService(now.Snapshot, e, func(svc *model.Service) bool {
		return host.InDNS(svc) || svc.Spec.GetHeadless() && (p.named() || !healthAlone(e))
	})
}

// healthAlone says whether an edit of endpoints changes their health and nothing else.
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

// named says whether any proxy asks for a name table. One of a scope that does not see the host may, once a change that
// is being planned is complete.
func (p *Planner) named() bool {
	for _, s := range p.scopes {
		if len(s.names) > 0 {
			return true
		}
	}
	return false
}

// retargeted says whether a service of the endpoints has target ports by name, and the edit changes ports: workloads listen on them.
func retargeted(_ *Planner, now *input.Input, e mirror.Edit) bool {
	return !samePorts(e) && anyService(now.Snapshot, e, func(svc *model.Service) bool {
		return slices.ContainsFunc(svc.Spec.GetPorts(), func(p *model.ServicePort) bool { return p.GetTargetName() != "" && p.GetTargetNumber() == 0 })
	})
}

// servesAny says whether one of the proxies is an endpoint that a ServiceEntry states, or was, and the edit is about where these are.
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

// anyService says whether something holds for a service of the hosts of an edit.
func anyService(s *mirror.Snapshot, e mirror.Edit, holds func(*model.Service) bool) bool {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
				for r := range s.ByHost(kind, h) {
					if holds(r.(*model.Service)) {
						return true
					}
				}
			}
		}
	}
	return false
}
