package machines

import (
	"cmp"
	"net/netip"
	"time"
	"weak"

	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// claimsFor is for how long the addresses that were found in a snapshot are used before they are looked for again.
const claimsFor = time.Second

// claims is who has which address by the configuration. Owned by Registry.
type claims struct {
	at      time.Time
	of      weak.Pointer[mirror.Snapshot] // weak: it may be out of date for days
	holders holders
	looked  int // snapshots that were looked through
}

// holders is by address, whatever its network: who names none may be of any.
type holders map[netip.Addr][]holder

// holder is a workload, an endpoint or a service that has an address.
type holder struct {
	key     model.Key
	account string
	network string // empty: none is named
	of      use
}

// use is what a holder has its address for.
type use uint8

const (
	ofEndpoint use = iota // of a WorkloadEntry, or as an endpoint
	ofPod
	ofService // a virtual address
)

// free says why a machine may not have its address: a Pod has it, another WorkloadEntry, an endpoint that is not of its service account, or a
// service, as a virtual address. Addresses of two networks differ, unless one of them is not named. What came within the last claimsFor may be missed.
func (c *claims) free(s *mirror.Snapshot, m machines.Machine, now time.Time) error {
	if of := weak.Make(s); c.holders == nil || c.of != of && (now.Sub(c.at) >= claimsFor || now.Before(c.at)) {
		c.at, c.of, c.holders = now, of, holdersOf(s)
		c.looked++
	}
	address, _ := netip.ParseAddr(m.Spec.GetAddress()) // it was read when it was claimed
	own := model.WorkloadEntryPrefix + m.Name
	for _, h := range c.holders[address] {
		mine := h.key.Namespace == m.Namespace && h.account == m.Account
		switch {
		case !machines.Meet(h.network, m.Spec.GetNetwork()):
		case h.of == ofPod:
			return taken(m, "Pod "+h.key.Namespace+"/"+h.key.Name)
		case h.of == ofService:
			return taken(m, h.key.Kind.String()+" "+h.key.Namespace+"/"+h.key.Name+", as a virtual address")
		case mine && h.key.Kind == model.KindEndpoints, mine && h.key.Kind == model.KindWorkload && h.key.Name == own:
		default:
			return taken(m, h.key.Kind.String()+" "+h.key.Namespace+"/"+h.key.Name)
		}
	}
	return nil
}

func holdersOf(s *mirror.Snapshot) holders {
	all := holders{}
	for r := range s.All(model.KindWorkload) {
		if w, is := r.(*model.Workload); is {
			h := holder{key: r.Meta().Key, account: w.Spec.GetEndpoint().GetServiceAccount(), network: w.Spec.GetEndpoint().GetNetwork()}
			if w.Spec.GetSource() == model.WorkloadSource_WORKLOAD_SOURCE_POD {
				h.of = ofPod
			}
			all.add(h, w.Spec.GetEndpoint().GetAddress())
			all.add(h, w.Spec.GetMoreAddresses()...)
		}
	}
	for r := range s.All(model.KindEndpoints) {
		if endpoints, is := r.(*model.Endpoints); is {
			for _, e := range endpoints.Spec.GetEndpoints() {
				h := holder{key: r.Meta().Key, account: e.GetServiceAccount(), network: e.GetNetwork()}
				h.key.Namespace = cmp.Or(e.GetNamespace(), h.key.Namespace)
				all.add(h, e.GetAddress())
			}
		}
	}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range s.All(kind) {
			if service, is := r.(*model.Service); is {
				h := holder{key: r.Meta().Key, of: ofService}
				all.add(h, service.Spec.GetAddresses()...)
				for _, host := range service.Spec.GetAutomatic() {
					all.add(h, host.GetAddresses()...)
				}
			}
		}
	}
	return all
}

// add takes in addresses as the configuration has them, in whatever form. What is none is nobody's: names, paths, and ranges of more than one, in which
// the machines behind a ServiceEntry may be.
func (all holders) add(h holder, addresses ...string) {
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			p, err := netip.ParsePrefix(text)
			if err != nil || !p.IsSingleIP() {
				continue
			}
			a = p.Addr()
		}
		all[a.Unmap()] = append(all[a.Unmap()], h)
	}
}
