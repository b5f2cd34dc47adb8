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

// holdersFor is the minimum time between two searches of a snapshot for addresses.
const holdersFor = time.Second

// addresses maps each IP address to the workloads, endpoints and services with this address in the configuration.
// Registry owns it.
type addresses struct {
	at       time.Time
	of       weak.Pointer[mirror.Snapshot] // weak: an outdated snapshot must not be retained in memory
	holders  holders
	searched int // number of snapshots that were searched
}

// holders contains the holders of each address, in all networks. A holder without a network may be in any network.
type holders map[netip.Addr][]holder

// holder is a workload, an endpoint or a service with an address.
type holder struct {
	key     model.Key
	account string
	network string // empty: not stated
	of      use
}

// use is the purpose of a holder's address.
type use uint8

// The uses of an address.
const (
	ofEndpoint use = iota // address of a WorkloadEntry or of an endpoint
	ofPod
	ofService // virtual address of a service
)

// conflict returns an error if another object has the machine's address: a Pod, another WorkloadEntry, an endpoint of
// another service account, or a service (as a virtual address). Equal addresses in two networks do not conflict,
// unless one of the networks is not stated.
//
// The holders may have been found up to holdersFor (1 s) ago. Objects that were added since then may be missed. Objects
// that were removed since then may still exclude the machine. Registry.refreshTaken later finds missed Pods and
// Kubernetes Services, but not missed WorkloadEntries, endpoints and ServiceEntries. The caller holds Registry.mu.
func (a *addresses) conflict(s *mirror.Snapshot, m machines.Machine, now time.Time) error {
	if !a.foundIn(s) && a.wait(now) <= 0 {
		a.refreshHolders(s, now)
	}
	for _, h := range a.holders[addressOf(m)] {
		if by := h.excludes(m); by != "" {
			return addressTaken(m, by)
		}
	}
	return nil
}

// foundIn reports whether the holders were found in this snapshot.
func (a *addresses) foundIn(s *mirror.Snapshot) bool { return a.holders != nil && a.of == weak.Make(s) }

// wait returns the time until another snapshot may be searched for holders. If it is 0 or less, a search is due.
func (a *addresses) wait(now time.Time) time.Duration {
	if a.holders == nil || now.Before(a.at) {
		return 0
	}
	return holdersFor - now.Sub(a.at)
}

// refreshHolders searches a snapshot for the holders.
func (a *addresses) refreshHolders(s *mirror.Snapshot, now time.Time) {
	a.at, a.of, a.holders = now, weak.Make(s), holdersOf(s)
	a.searched++
}

// addressOf returns the address of a machine.
func addressOf(m machines.Machine) netip.Addr {
	address, _ := netip.ParseAddr(m.Spec.GetAddress()) // claimOf has parsed it
	return address
}

// excludes returns the holder's name if a machine must not have the same address, or "" if it may.
func (h holder) excludes(m machines.Machine) string {
	mine := h.key.Namespace == m.Namespace && h.account == m.Account
	switch {
	case !machines.Meet(h.network, m.Spec.GetNetwork()):
		return ""
	case h.of == ofPod:
		return "Pod " + h.key.Namespace + "/" + h.key.Name
	case h.of == ofService:
		return h.key.Kind.String() + " " + h.key.Namespace + "/" + h.key.Name + ", as a virtual address"
	case mine && h.key.Kind == model.KindEndpoints, mine && h.key.Kind == model.KindWorkload && h.key.Name == model.WorkloadEntryPrefix+m.Name:
		return ""
	}
	return h.key.Kind.String() + " " + h.key.Namespace + "/" + h.key.Name
}

// holdersOf returns the holders in a snapshot.
func holdersOf(s *mirror.Snapshot) holders {
	all := holders{}
	for _, kind := range []model.Kind{model.KindWorkload, model.KindEndpoints, model.KindService, model.KindServiceEntry} {
		for r := range s.All(kind) {
			all.read(r)
		}
	}
	return all
}

// read adds the addresses of a Workload, Endpoints, Service or ServiceEntry. It ignores nil and records of other kinds.
func (all holders) read(r model.Record) {
	switch t := r.(type) {
	case *model.Workload:
		h := holder{key: t.Key, account: t.Spec.GetEndpoint().GetServiceAccount(), network: t.Spec.GetEndpoint().GetNetwork()}
		if t.Spec.GetSource() == model.WorkloadSource_WORKLOAD_SOURCE_POD {
			h.of = ofPod
		}
		all.add(h, t.Spec.GetEndpoint().GetAddress())
		all.add(h, t.Spec.GetMoreAddresses()...)
	case *model.Endpoints:
		for _, e := range t.Spec.GetEndpoints() {
			h := holder{key: t.Key, account: e.GetServiceAccount(), network: e.GetNetwork()}
			h.key.Namespace = cmp.Or(e.GetNamespace(), h.key.Namespace)
			all.add(h, e.GetAddress())
		}
	case *model.Service:
		h := holder{key: t.Key, of: ofService}
		all.add(h, t.Spec.GetAddresses()...)
		for _, host := range t.Spec.GetAutomatic() {
			all.add(h, host.GetAddresses()...)
		}
	}
}

// add adds addresses of a holder, in any notation of the configuration. It ignores host names and paths. It also
// ignores ranges of several addresses, because the machines behind a ServiceEntry may be in such a range.
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
