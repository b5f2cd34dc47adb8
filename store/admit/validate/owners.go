package validate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// owners implements normal.Owners, except Tenant, with the records of a snapshot. All reviews at one snapshot share
// it. Addresses and wildcards are looked up in sorted lists, because one object may state 100,000 of them. The lists
// may be a little older than the snapshot, because the catalogue shares them among successive snapshots. owners is
// safe for concurrent use.
type owners struct {
	known *mirror.Snapshot
	users func() []user
	below func() []below
}

// user is an address with the Service or the Pod that has it.
type user struct {
	address   netip.Addr
	service   *model.Service // nil: a Pod
	namespace string
}

// below is a host of a ServiceEntry. The field ending has the bytes of the host in reverse order. Hosts of one domain
// are therefore neighbours when sorted by ending.
type below struct {
	ending string
	entry  *model.Service
}

// ownersOf returns the owners at a snapshot. A nil snapshot counts as empty.
func ownersOf(known *mirror.Snapshot) *owners { return newCatalogue().at(known) }

// at returns the owners at a snapshot. A nil snapshot counts as empty. The returned owners take each list from the
// catalogue once, at its first use, and keep it.
func (c *catalogue) at(known *mirror.Snapshot) *owners {
	if known == nil {
		known = mirror.Empty()
	}
	return &owners{known: known, users: sync.OnceValue(func() []user { return c.users.at(known) }),
		below: sync.OnceValue(func() []below { return c.below.at(known) })}
}

// readUsers returns the addresses of Services and Pods, sorted by address. Services precede Pods of the same address.
func readUsers(known *mirror.Snapshot) (all []user) {
	add := func(text string, of user) {
		if a, err := netip.ParseAddr(text); err == nil {
			of.address = a.Unmap()
			all = append(all, of)
		}
	}
	for r := range known.All(model.KindService) {
		s := r.(*model.Service)
		for _, text := range s.Spec.GetAddresses() {
			add(text, user{service: s, namespace: s.Key.Namespace})
		}
	}
	for r := range known.All(model.KindWorkload) {
		if w := r.(*model.Workload); !w.Spec.FromEntry() {
			add(w.Spec.GetEndpoint().GetAddress(), user{namespace: w.Key.Namespace})
		}
	}
	slices.SortStableFunc(all, func(a, b user) int { return a.address.Compare(b.address) })
	return all
}

// readHosts returns the hosts of ServiceEntries, sorted by ending.
func readHosts(known *mirror.Snapshot) (all []below) {
	for r := range known.All(model.KindServiceEntry) {
		s := r.(*model.Service)
		for _, host := range s.Spec.GetHosts() {
			all = append(all, below{model.Backwards(host), s})
		}
	}
	slices.SortStableFunc(all, func(a, b below) int { return cmp.Compare(a.ending, b.ending) })
	return all
}

// Services implements normal.Owners: it returns the Kubernetes Services and the ServiceEntries with exactly this host,
// the Services first. The result is nil without such objects.
func (o *owners) Services(host string) (all []*model.Service) {
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range o.known.ByHost(kind, host) {
			all = append(all, r.(*model.Service))
		}
	}
	return all
}

// Below implements normal.Owners: it returns the ServiceEntries with a host that a wildcard covers (model.Covers), each
// once. A host equal to the wildcard does not count. The result is nil without such ServiceEntries.
func (o *owners) Below(wildcard string) (all []*model.Service) {
	ending, hosts := model.Backwards(strings.TrimPrefix(wildcard, "*")), o.below()
	at, _ := slices.BinarySearchFunc(hosts, ending, func(b below, ending string) int { return cmp.Compare(b.ending, ending) })
	seen := map[*model.Service]bool{}
	for _, b := range hosts[at:] {
		if !strings.HasPrefix(b.ending, ending) {
			break
		}
		if !seen[b.entry] && model.Covers(wildcard, model.Backwards(b.ending)) {
			seen[b.entry], all = true, append(all, b.entry)
		}
	}
	return all
}

// from returns the users sorted by address, without those whose addresses precede the network's first address.
func (o *owners) from(network netip.Prefix) []user {
	users := o.users()
	at, _ := slices.BinarySearchFunc(users, network.Masked().Addr(), func(u user, a netip.Addr) int { return u.address.Compare(a) })
	return users[at:]
}

// At implements normal.Owners: it returns the Kubernetes Services (no ServiceEntries) with an address, each once, and
// reports whether a Pod has the address. The result services is nil without such Services.
func (o *owners) At(a netip.Addr) (services []*model.Service, pod bool) {
	for _, u := range o.from(netip.PrefixFrom(a, a.BitLen())) {
		switch {
		case u.address != a || u.service == nil:
			return services, u.address == a
		case !slices.Contains(services, u.service):
			services = append(services, u.service)
		}
	}
	return services, false
}

// OwnPod implements normal.Owners: it reports whether a Pod in the object's namespace, of any cluster, has the
// address.
func (o *owners) OwnPod(of object.ID, a netip.Addr) bool {
	for _, u := range o.from(netip.PrefixFrom(a, a.BitLen())) {
		if u.address != a {
			return false
		}
		if u.service == nil && u.namespace == of.Namespace {
			return true
		}
	}
	return false
}

// Within implements normal.Owners: it returns the lowest address of a Kubernetes Service or a Pod in a network. Without
// such an address it returns the zero Addr.
func (o *owners) Within(network netip.Prefix) netip.Addr {
	if all := o.from(network); len(all) > 0 && network.Contains(all[0].address) {
		return all[0].address
	}
	return netip.Addr{}
}
