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

// Automatic addresses: a ServiceEntry that states no address is given one for each of its hosts, in the status of the object
// (https://istio.io/latest/docs/ops/configuration/traffic-management/dns-proxy/#address-auto-allocation). Which ServiceEntries and hosts have
// some are istiod's rules (pilot/pkg/networking/serviceentry, pilot/pkg/controllers/ipallocate); who has which is store/allocate'.

const automaticLabel = "networking.istio.io/enable-autoallocate-ip"

// AutomaticID names the object that says which automatic addresses a ServiceEntry has. Its origin is no source of configuration: it comes
// from the leader alone.
func AutomaticID(namespace, name string) object.ID {
	return object.ID{Origin: origin.New("", origin.Addresses), Group: object.OwnGroup, Kind: "AutomaticAddresses", Namespace: namespace,
		Name: name}
}

// AutomaticAtID names whichever ServiceEntry has an automatic address, for Refs of what looks that up.
func AutomaticAtID(address netip.Addr) object.ID {
	return object.ID{Origin: origin.New("", origin.Addresses), Group: object.OwnGroup, Kind: "AutomaticAddress", Name: address.String()}
}

// automaticObject is its content: IPs by host.
type automaticObject struct {
	Hosts map[string][]string `json:"hosts"`
}

// NewAutomatic makes the object. Lists of addresses are IPs, IPv4 before IPv6. Errors are those of encoding.
func NewAutomatic(namespace, name string, hosts map[string][]string) (*object.Object, error) {
	raw, err := json.Marshal(automaticObject{hosts})
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: AutomaticID(namespace, name), Version: "v1", JSON: raw, Location: "automatic addresses"}, nil
}

// ParseAutomatic reads what NewAutomatic made; nil: it did not make it.
func ParseAutomatic(obj *object.Object) map[string][]string {
	var content automaticObject
	if json.Unmarshal(obj.JSON, &content) != nil {
		return nil
	}
	return content.Hosts
}

// EntryAddresses is what a ServiceEntry says that matters for automatic addresses.
type EntryAddresses struct {
	Hosts  []string                // those that are to have some, sorted
	Given  map[string][]netip.Addr // what the status of an object in Kubernetes says that they have, by host
	Stated []netip.Addr            // IPs that it states itself: nobody is given them
}

// EntryAddressesOf reads a ServiceEntry; false: it cannot be understood, and what was known of it stands.
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

// automaticHosts are the hosts that are to have automatic addresses, sorted.
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

// givenAddresses is status.addresses of an object, for these hosts. What is no IP is left out, as istiod does.
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
		if _, is := slices.BinarySearch(hosts, host); !is || err != nil || a.Zone() != "" || a.IsUnspecified() || len(given[host]) >= mostGiven {
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

// mostGiven is how many addresses of one host are read of a status: istiod gives two.
const mostGiven = 8

// automatic is what a record says of them.
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

// stated are the addresses that a ServiceEntry states and may have: one that is the automatic address of another's host stays that host's, and no
// network within the ranges of automatic addresses is anybody's. What it may not have is left out, and reported.
func (n *Normalizer) stated(r *report, obj *object.Object, entry *networkingv1.ServiceEntry, ctx Lookup) (all []string) {
	own := AutomaticID(obj.ID.Namespace, obj.ID.Name)
	for i, text := range entry.Addresses {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		network, err := netip.ParsePrefix(text)
		if err != nil {
			a, _ := netip.ParseAddr(text) // serviceEntryShape has reported what is neither
			network = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		}
		within := slices.ContainsFunc(n.Automatic, func(p netip.Prefix) bool { return p.Bits() <= network.Bits() && p.Contains(network.Addr()) })
		switch {
		case within && !network.IsSingleIP():
			r.add(r.problem(problem.NotAllowed, problem.Error, field,
				"%s is left out: it is a part of the range of automatic addresses, of which single ones alone may be stated", text))
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
