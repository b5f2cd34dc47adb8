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

// holdersFor is the life of the addresses that were found in a snapshot.
const holdersFor = time.Second

// addresses maps each IP address to the workload, endpoint or service that the configuration gives it to. Registry owns
// it.
type addresses struct {
	at      time.Time
	of      weak.Pointer[mirror.Snapshot] // weak: the snapshot may be out of date for days
	holders holders
	looked  int // number of snapshots that were searched
}

// holders are the holders of each address, in any network: one without a network may be in any.
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

const (
	ofEndpoint use = iota // of a WorkloadEntry, or as an endpoint
	ofPod
	ofService // a virtual address
)

// free returns why a machine may not have its address, or nil. A Pod may have it, another WorkloadEntry, an endpoint
// that is not of its service account, or a service, as a virtual address. Addresses of two networks differ, unless one
// of them is not stated. Objects of the last holdersFor may be missed; Registry.refreshTaken finds them later.
func (a *addresses) free(s *mirror.Snapshot, m machines.Machine, now time.Time) error {
	if !a.isOf(s) && a.wait(now) <= 0 {
		a.refreshHolders(s, now)
	}
	for _, h := range a.holders[addressOf(m)] {
		if by := h.excludes(m); by != "" {
			return taken(m, by)
		}
	}
	return nil
}

// isOf reports whether the holders were found in this snapshot.
func (a *addresses) isOf(s *mirror.Snapshot) bool { return a.holders != nil && a.of == weak.Make(s) }

// wait returns how long the holders are used before another snapshot is searched.
func (a *addresses) wait(now time.Time) time.Duration {
	if a.holders == nil || now.Before(a.at) {
		return 0
	}
	return holdersFor - now.Sub(a.at)
}

func (a *addresses) refreshHolders(s *mirror.Snapshot, now time.Time) {
	a.at, a.of, a.holders = now, weak.Make(s), holdersOf(s)
	a.looked++
}

func addressOf(m machines.Machine) netip.Addr {
	address, _ := netip.ParseAddr(m.Spec.GetAddress()) // it was parsed when it was claimed
	return address
}

// excludes names the holder if a machine may not have the same address; otherwise it returns the empty string.
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

func holdersOf(s *mirror.Snapshot) holders {
	all := holders{}
	for _, kind := range []model.Kind{model.KindWorkload, model.KindEndpoints, model.KindService, model.KindServiceEntry} {
		for r := range s.All(kind) {
			all.read(r)
		}
	}
	return all
}

// read adds the addresses of a record. It ignores nil and other kinds.
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

// add adds addresses in any form of the configuration. Names, paths, and ranges of several addresses are ignored: the
// machines behind a ServiceEntry may be in such a range.
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
