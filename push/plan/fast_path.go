package plan

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// PlanEndpoints is the fast path: it plans endpoint assignments of hosts as they were last planned, and nothing else. It returns
// the edits that touch more than that, and so have to come again with Apply; edits of other kinds come back untouched.
// Where nothing else is pending or being planned, all that is planned is complete at the snapshot's revision afterwards.
func (p *Planner) PlanEndpoints(c mirror.Change, pending bool) (moved []Moved, rest []mirror.Edit) {
	in := p.input.Later(c.New)
	ch := &change{dirt: newDirt(), in: in, was: in.Root()}
	for _, e := range c.Edits {
		kind := e.Key().Kind
		if kind == model.KindWorkload && !p.secrets.Relabelled(e) {
			continue // nothing of it but its labels is planned; what selects it has other edits
		}
		if kind != model.KindEndpoints {
			rest = append(rest, e)
			continue
		}
		if p.renumbered(c.New, e) || p.reidentified(c.New, e) || p.mtlsDisabledDiffers(c.New, e) || p.securesOtherwise(in, e) || p.secrets.Relabelled(e) {
			rest = append(rest, e)
			continue
		}
		ch.collect(p.table, []mirror.Edit{e})
		if p.slow(c.New, e) || ch.everything {
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
	p.replan.replay(c.New, ch.members, touched)
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

// renumbered says whether a service of the endpoints is gone, or has other ports, since it was planned. Endpoints are
// found by the names of ports, and routes still lead to them: they go together with the service, or there would be none
// in between.
func (p *Planner) renumbered(s *mirror.Snapshot, e mirror.Edit) bool {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
				for r := range p.input.ByHost(kind, h) {
					now, still := s.Get(r.Meta().Key)
					if !still || now != r && !slices.EqualFunc(now.(*model.Service).Spec.GetPorts(), r.(*model.Service).Spec.GetPorts(), equalPorts) {
						return true
					}
				}
			}
		}
	}
	return false
}

// reidentified says whether a host of the endpoints has other service accounts than were planned. Clusters believe those
// they name alone, and would refuse a new endpoint that comes before they do.
func (p *Planner) reidentified(s *mirror.Snapshot, e mirror.Edit) bool {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			if !slices.Equal(input.AccountsOf(p.input.Snapshot, h, e.Key().Namespace), input.AccountsOf(s, h, e.Key().Namespace)) {
				return true
			}
		}
	}
	return false
}

// mtlsDisabledDiffers says whether the clusters of a host have to tell of other endpoints that are spoken to without mTLS.
func (p *Planner) mtlsDisabledDiffers(s *mirror.Snapshot, e mirror.Edit) bool {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			if p.input.MTLSDisabledDiffers(s, h, e.Key().Namespace) {
				return true
			}
		}
	}
	return false
}

// securesOtherwise says whether a cluster of the endpoints speaks mTLS to all of them or to none, and would change that.
func (p *Planner) securesOtherwise(in *input.Input, e mirror.Edit) bool {
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

// slow says whether an edit of endpoints touches more than assignments: clusters of DNS services, listeners of headless
// ones, target ports by name.
func (p *Planner) slow(s *mirror.Snapshot, e mirror.Edit) bool {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
				for r := range s.ByHost(kind, h) {
					svc := r.(*model.Service)
					named := slices.ContainsFunc(svc.Spec.GetPorts(), func(p *model.ServicePort) bool { return p.GetTargetName() != "" && p.GetTargetNumber() == 0 })
					if host.InDNS(svc) || svc.Spec.GetHeadless() || named {
						return true
					}
				}
			}
		}
	}
	return false
}
