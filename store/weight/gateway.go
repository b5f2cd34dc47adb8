package weight

import (
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/smallset"
)

// gateway has the hosts of the servers of one Gateway, by the namespace whose VirtualServices may bind to them. An
// empty namespace means all namespaces.
type gateway map[string]*serverHosts

// serverHosts finds the hosts of servers that intersect with a given host. It does not compare the given host with each
// of them.
type serverHosts struct {
	times   map[target]int // occurrences of each host
	endings []string       // the hosts, each read backwards and without the star of a wildcard, sorted
	sums    []int          // sums[i] is the number of occurrences of the hosts in endings[:i]
}

// bound contains the VirtualServices that name one Gateway. The Gateway may be missing.
type bound = smallset.Set[model.Key]

// gatewayLoad measures a Gateway. Each server needs a listener or filter chain, and a route configuration. Each host of
// a server is a name in both of these resources. A host of a server that requires client certificates is also a name in
// the route configurations of all servers with a wildcard that covers it, where its requests are answered 421. The
// number of such wildcards, also of other Gateways, is at most that of the host's dots and dashes plus one. Virtual
// hosts are a part of the weights of VirtualServices.
func (l *Load) gatewayLoad(g *networkingv1.Gateway) {
	l.exported, l.gateway = true, gateway{}
	hosts, guarded := 0, 0
	for _, s := range g.GetServers() {
		hosts += len(s.GetHosts())
		guards := guarding(s.GetTls().GetMode())
		for _, h := range s.GetHosts() {
			namespace, name := model.ServerHost(h, l.key.Namespace)
			if guards {
				guarded += 1 + strings.Count(name, ".") + strings.Count(name, "-")
			}
			t := targetOf(namespace, name)
			if l.gateway[t.namespace] == nil {
				l.gateway[t.namespace] = &serverHosts{times: map[target]int{}}
			}
			l.gateway[t.namespace].times[target{"", t.host, t.wildcard}]++
		}
	}
	for _, of := range l.gateway {
		of.sort()
	}
	l.fixed = len(g.GetServers())*server + hosts*serverHost + guarded/perGuarded + bytes(g)
}

// guarding reports whether a server with a TLS mode requires client certificates.
func guarding(mode networkingv1.ServerTLSSettings_TLSmode) bool {
	return mode == networkingv1.ServerTLSSettings_MUTUAL || mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL
}

// sort fills endings and sums.
func (s *serverHosts) sort() {
	at := map[string]int{}
	for t, times := range s.times {
		at[model.Backwards(t.host)] += times
	}
	s.endings = slices.Sorted(maps.Keys(at))
	s.sums = append(s.sums, 0)
	for i, ending := range s.endings {
		s.sums = append(s.sums, s.sums[i]+at[ending])
	}
}

// meets counts the hosts of servers that intersect with a host of a VirtualService.
func (s *serverHosts) meets(host string) (n int) {
	rest, wildcard := strings.CutPrefix(host, "*")
	if !wildcard {
		for t := range targetsOver("", host) {
			n += s.times[t]
		}
		return n
	}
	ending := model.Backwards(rest)
	from, _ := slices.BinarySearch(s.endings, ending)
	to, _ := slices.BinarySearch(s.endings, ending+"\xff") // no host has this byte
	n = s.sums[to] - s.sums[from]
	for t := range targetsOver("", rest) {
		if t.wildcard && len(t.host) < len(rest) {
			n += s.times[t]
		}
	}
	return n
}

// meets counts the hosts of a Gateway that intersect with a host of a VirtualService. The first argument is the
// VirtualService's namespace. Each intersection is a virtual host.
func (g gateway) meets(namespace, host string) (n int) {
	for _, of := range []string{"", namespace} {
		if s := g[of]; s != nil {
			n += s.meets(host)
		}
	}
	return n
}

// gatewaysOf lists the Gateways that a VirtualService names, each once.
func gatewaysOf(vs *networkingv1.VirtualService, key model.Key) (all []model.Key) {
	seen := map[string]bool{}
	for _, text := range vs.GetGateways() {
		if namespace, name, is := strings.Cut(text, "/"); is && !seen[text] {
			seen[text] = true
			all = append(all, model.Key{Kind: model.KindGateway, Namespace: namespace, Name: name, Origin: key.Origin})
		}
	}
	return all
}

// copiesOf counts the copies of a VirtualService that do not depend on services. These are Load.copies, and the virtual
// hosts at the Gateways that the VirtualService names. Each host of the VirtualService counts at least once for each
// Gateway, because the Gateway may be created later. The given function is called with each fact that is used, and may
// be nil.
func (x *Index) copiesOf(l Load, read func(Read)) int {
	n := l.copies
	for _, key := range l.gateways {
		if read != nil {
			read(Read{delegate: key})
		}
		if n = min(most, n+max(len(l.names), x.met(x.gateways[key], l))); times(max(1, l.each), n) >= endless {
			break // no budget has room for it, whatever the other Gateways add
		}
	}
	return n
}

// endless is a weight above every budget, in KiB.
const endless = 1 << 30

// met counts the virtual hosts of a VirtualService at one Gateway.
func (x *Index) met(g gateway, l Load) (n int) {
	if len(g) == 0 {
		return 0
	}
	for _, h := range l.names {
		n += g.meets(l.key.Namespace, h)
	}
	return n
}

// multiplied returns the KiB that a Gateway adds to VirtualServices, beyond the amount in their own weights. If
// Index.together is false, only VirtualServices of the Gateway's namespace count.
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

// bind adds a VirtualService to x.bound for each Gateway that it names. If the last argument is false, bind removes the
// VirtualService instead.
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
