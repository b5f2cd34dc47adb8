package normal

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Automatic addresses are IP addresses for the hosts of ServiceEntries without addresses in the spec. They appear in
// the status of the ServiceEntry
// (https://istio.io/latest/docs/ops/configuration/traffic-management/dns-proxy/#address-auto-allocation). The rules of
// istiod decide which hosts need addresses (pilot/pkg/networking/serviceentry, pilot/pkg/controllers/ipallocate).
// store/allocate assigns the addresses.

// automaticLabel with value "false" excludes a ServiceEntry from automatic addresses.
const automaticLabel = "networking.istio.io/enable-autoallocate-ip"

// AutomaticID returns the ID of the object with the automatic addresses of a ServiceEntry, given the entry's namespace
// and name. Only the leader emits such objects; sources of configuration have other origins.
func AutomaticID(namespace, name string) object.ID {
	return object.ID{Origin: origin.New("", origin.Addresses), Group: object.OwnGroup, Kind: "AutomaticAddresses", Namespace: namespace,
		Name: name}
}

// AutomaticAtID returns an ID for the lookup of the owner of an automatic address. Callers put it into the Refs (list
// of lookups) of an object. No object has this ID. The address must not be an IPv4-mapped IPv6 address.
func AutomaticAtID(address netip.Addr) object.ID {
	return object.ID{Origin: origin.New("", origin.Addresses), Group: object.OwnGroup, Kind: "AutomaticAddress", Name: address.String()}
}

// automaticObject is the JSON of an object with automatic addresses: IP addresses by host.
type automaticObject struct {
	Hosts map[string][]string `json:"hosts"`
}

// NewAutomatic returns the object with the automatic addresses of a ServiceEntry. hosts has the IP addresses by host,
// IPv4 before IPv6. NewAutomatic copies hosts, and does not validate them. The error is that of encoding JSON.
func NewAutomatic(namespace, name string, hosts map[string][]string) (*object.Object, error) {
	raw, err := json.Marshal(automaticObject{hosts})
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: AutomaticID(namespace, name), Version: "v1", JSON: raw, Location: "automatic addresses"}, nil
}

// ParseAutomatic returns the addresses by host of an object that NewAutomatic made. The result is nil if the JSON
// cannot be decoded, or if NewAutomatic got nil.
func ParseAutomatic(obj *object.Object) map[string][]string {
	var content automaticObject
	if json.Unmarshal(obj.JSON, &content) != nil {
		return nil
	}
	return content.Hosts
}

// EntryAddresses has the properties of a ServiceEntry on which automatic addresses depend.
type EntryAddresses struct {
	Hosts []string // hosts that need automatic addresses, lower case, sorted, each once; nil: no host
	// Given has the addresses in the status of the object, by host. All of its hosts are in Hosts. It is nil if the
	// object is not from Kubernetes, if its status cannot be decoded, or if Hosts is empty. Each host has at most 8
	// addresses, sorted, with IPv4-mapped addresses as IPv4.
	Given  map[string][]netip.Addr
	Stated []netip.Addr // IP addresses (not CIDRs) in the spec, in its order
}

// EntryAddressesOf returns the EntryAddresses of a ServiceEntry. It returns false if the spec cannot be decoded, or if
// a host or an address in the spec is invalid. It does not validate other fields.
func EntryAddressesOf(obj *object.Object) (EntryAddresses, bool) {
	r, entry := &report{id: obj.ID}, &networkingv1.ServiceEntry{}
	if !r.spec(obj, entry) {
		return EntryAddresses{}, false
	}
	if serviceEntryHosts(r, entry); r.spoiled {
		return EntryAddresses{}, false
	}
	var c EntryAddresses
	for _, text := range entry.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			c.Stated = append(c.Stated, a.Unmap())
		}
	}
	if c.Hosts = automaticHosts(obj, entry); len(c.Hosts) > 0 && obj.ID.Origin.Source() == origin.Kube {
		c.Given = givenAddresses(obj, c.Hosts)
	}
	return c, true
}

// automaticHosts returns the hosts of a ServiceEntry that need automatic addresses, sorted, each once.
func automaticHosts(obj *object.Object, entry *networkingv1.ServiceEntry) (hosts []string) {
	if len(entry.Addresses) > 0 || entry.Resolution == networkingv1.ServiceEntry_NONE ||
		strings.EqualFold(obj.Labels[automaticLabel], "false") {
		return nil
	}
	for _, h := range entry.Hosts {
		if !strings.HasPrefix(h, "*") {
			hosts = append(hosts, strings.ToLower(h))
		}
	}
	return sortedSet(hosts)
}

// givenAddresses returns the addresses in status.addresses of an object, by host, sorted. As in istiod, invalid
// addresses and addresses of other hosts are omitted.
func givenAddresses(obj *object.Object, hosts []string) map[string][]netip.Addr {
	var whole struct {
		Status struct {
			Addresses []struct{ Value, Host string } `json:"addresses"`
		} `json:"status"`
	}
	if json.Unmarshal(obj.JSON, &whole) != nil {
		return nil
	}
	given := map[string][]netip.Addr{}
	for _, one := range whole.Status.Addresses {
		host := strings.ToLower(one.Host)
		a, err := netip.ParseAddr(one.Value)
		_, is := slices.BinarySearch(hosts, host)
		if !is || err != nil || a.Zone() != "" || a.IsUnspecified() || len(given[host]) >= mostGiven {
			continue
		}
		if a = a.Unmap(); !slices.Contains(given[host], a) {
			given[host] = append(given[host], a)
		}
	}
	for _, all := range given {
		slices.SortFunc(all, netip.Addr.Compare)
	}
	return given
}

// mostGiven is the largest number of addresses that are read from a status for one host. istiod writes two.
const mostGiven = 8

// automatic returns the automatic addresses of the hosts of a ServiceEntry, for its record.
func (n *Normalizer) automatic(r *report, obj *object.Object, entry *networkingv1.ServiceEntry, ctx Lookup) (all []*model.HostAddresses) {
	if len(n.Automatic) == 0 {
		return nil
	}
	hosts := automaticHosts(obj, entry)
	if len(hosts) == 0 {
		return nil
	}
	id := AutomaticID(obj.ID.Namespace, obj.ID.Name)
	r.ref(id)
	have := ctx.Automatic(id)
	for _, host := range hosts {
		if addresses := have[host]; len(addresses) > 0 {
			all = append(all, &model.HostAddresses{Host: host, Addresses: addresses})
		}
	}
	return all
}

// stated returns the addresses in the spec of a ServiceEntry, sorted. It omits and reports an address that is the
// automatic address of another ServiceEntry. It also omits and reports a network within a range of automatic addresses.
func (n *Normalizer) stated(r *report, obj *object.Object, entry *networkingv1.ServiceEntry, ctx Lookup) (all []string) {
	own := AutomaticID(obj.ID.Namespace, obj.ID.Name)
	for i, text := range entry.Addresses {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		network, err := netip.ParsePrefix(text)
		if err != nil {
			a, _ := netip.ParseAddr(text) // an invalid text was reported by serviceEntryShape
			network = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		}
		within := slices.ContainsFunc(n.Automatic, func(p netip.Prefix) bool { return p.Bits() <= network.Bits() && p.Contains(network.Addr()) })
		switch {
		case within && !network.IsSingleIP():
			r.add(r.problem(problem.NotAllowed, problem.Error, field,
				"%s is left out: it is a network in the range of automatic addresses, and only single addresses of that range may be "+
					"stated", text))
			continue
		case within:
			at := AutomaticAtID(network.Addr())
			r.ref(at)
			if of := ctx.AutomaticAt(at); of != (object.ID{}) && of != own {
				r.add(r.problem(problem.NotAllowed, problem.Error, field,
					"%s is left out: it is the automatic address of a host of another ServiceEntry", text))
				continue
			}
		}
		all = append(all, text)
	}
	return sortedSet(all)
}
