package machines

import (
	"cmp"
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
	holders map[place][]holder
	looked  int // snapshots that were looked through
}

type place struct{ network, address string }

// holder is a workload, or an endpoint, that has an address.
type holder struct {
	key     model.Key
	account string
	pod     bool
}

// free says why a machine may not have its address: a Pod has it, another WorkloadEntry, or an endpoint that is not of its service account. What
// came within the last claimsFor may be missed: the leader looks again (machines.Registry).
func (c *claims) free(s *mirror.Snapshot, m machines.Machine, now time.Time) error {
	if of := weak.Make(s); c.holders == nil || c.of != of && (now.Sub(c.at) >= claimsFor || now.Before(c.at)) {
		c.at, c.of, c.holders = now, of, holdersOf(s)
		c.looked++
	}
	own := model.WorkloadEntryPrefix + m.Name
	for _, h := range c.holders[place{m.Spec.Network, m.Spec.Address}] {
		mine := h.key.Namespace == m.Namespace && h.account == m.Account
		switch {
		case h.pod:
			return taken(m, "Pod "+h.key.Namespace+"/"+h.key.Name)
		case mine && h.key.Kind == model.KindEndpoints, mine && h.key.Kind == model.KindWorkload && h.key.Name == own:
		default:
			return taken(m, h.key.Kind.String()+" "+h.key.Namespace+"/"+h.key.Name)
		}
	}
	return nil
}

func holdersOf(s *mirror.Snapshot) map[place][]holder {
	all := map[place][]holder{}
	add := func(key model.Key, e *model.Endpoint, pod bool) {
		at := place{e.GetNetwork(), e.GetAddress()}
		all[at] = append(all[at], holder{key, e.GetServiceAccount(), pod})
	}
	for r := range s.All(model.KindWorkload) {
		if w, is := r.(*model.Workload); is {
			add(r.Meta().Key, w.Spec.GetEndpoint(), w.Spec.GetSource() == model.WorkloadSource_WORKLOAD_SOURCE_POD)
		}
	}
	for r := range s.All(model.KindEndpoints) {
		if endpoints, is := r.(*model.Endpoints); is {
			for _, e := range endpoints.Spec.GetEndpoints() {
				key := r.Meta().Key
				key.Namespace = cmp.Or(e.GetNamespace(), key.Namespace)
				add(key, e, false)
			}
		}
	}
	return all
}
