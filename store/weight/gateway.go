package weight

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/smallset"
)

// gateway is one Gateway as it was added. It maps each host of the Gateway's servers to the number of its occurrences.
// Only VirtualServices of the target's namespace may bind to the host. An empty namespace means all namespaces.
type gateway map[target]int

// bound contains the VirtualServices that name one Gateway. The Gateway may be missing.
type bound = smallset.Set[model.Key]

// gatewayLoad measures a Gateway. Each server needs a listener or filter chain, and a route configuration. Each host is
// a name in both. Virtual hosts are a part of the weights of VirtualServices.
func (l *Load) gatewayLoad(g *networkingv1.Gateway) {
	l.exported, l.gateway = true, gateway{}
	hosts := 0
	for _, s := range g.GetServers() {
		hosts += len(s.GetHosts())
		for _, h := range s.GetHosts() {
			l.gateway[targetOf(model.ServerHost(h, l.key.Namespace))]++
		}
	}
	l.fixed = len(g.GetServers())*server + hosts*serverHost + bytes(g)
}

// meets counts the hosts of a Gateway that intersect with a host of a VirtualService in a namespace. Each intersection
// is a virtual host.
func (g gateway) meets(namespace, host string) (n int) {
	if rest, wildcard := strings.CutPrefix(host, "*"); wildcard {
		for t, times := range g {
			if t.namespace != "" && t.namespace != namespace {
				continue
			}
			if strings.HasSuffix(t.host, rest) || t.wildcard && strings.HasSuffix(rest, t.host) {
				n += times
			}
		}
		return n
	}
	for _, of := range []string{"", namespace} {
		for t := range targetsOver(of, host) {
			n += g[t]
		}
	}
	return n
}

// gatewaysOf lists the Gateways that a VirtualService names.
func gatewaysOf(vs *networkingv1.VirtualService, key model.Key) (all []model.Key) {
	for _, text := range vs.GetGateways() {
		if namespace, name, is := strings.Cut(text, "/"); is {
			all = append(all, model.Key{Kind: model.KindGateway, Namespace: namespace, Name: name, Origin: key.Origin})
		}
	}
	return all
}

// copiesOf counts the copies of a VirtualService that do not depend on services: l.copies, and the virtual hosts at the
// Gateways that it names. Each of its hosts counts at least once for each Gateway, because the Gateway may come later.
// The function read may be nil.
func (x *Index) copiesOf(l Load, read func(Read)) int {
	n := l.copies
	for _, key := range l.gateways {
		if read != nil {
			read(Read{delegate: key})
		}
		n = min(most, n+max(len(l.names), x.met(x.gateways[key], l)))
	}
	return n
}

// met counts the virtual hosts of a VirtualService at one Gateway.
func (x *Index) met(g gateway, l Load) (n int) {
	for _, h := range l.names {
		n += g.meets(l.key.Namespace, h)
	}
	return n
}

// multiplied returns the KiB that a Gateway adds to VirtualServices, beyond the amount in their own weights. Without
// Index.together, only VirtualServices of the Gateway's namespace count.
func (x *Index) multiplied(l Load, read func(Read)) (sum int) {
	if l.gateway == nil {
		return 0
	}
	read(Read{delegate: l.key})
	names := x.bound[l.key]
	if names == nil {
		return 0
	}
	for key := range names.All() {
		if a := x.applied[key]; x.together || key.Namespace == l.key.Namespace {
			more := max(len(a.load.names), x.met(l.gateway, a.load)) - a.at[slices.Index(a.load.gateways, l.key)]
			sum = min(most, sum+times(a.load.each, max(0, more)))
		}
	}
	return sum
}

// bind adds a VirtualService to the VirtualServices of its Gateways if the last argument is true, and removes it
// otherwise.
func (x *Index) bind(l Load, in bool) {
	for _, key := range l.gateways {
		if x.bound[key] == nil {
			x.bound[key] = &bound{}
		}
		if in {
			x.bound[key].Add(l.key)
		} else if x.bound[key].Remove(l.key) {
			delete(x.bound, key)
		}
		x.changed(Read{delegate: key})
	}
}
