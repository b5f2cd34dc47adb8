package gateway

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/store/model"
)

// stated maps a name to the hosts of this name in the servers of a route configuration. The hosts of a name are in the
// order of the servers. A name may have thousands of servers, and a server may have thousands of hosts.
type stated map[string][]statedHost

// statedHost is a host of the server with an index.
type statedHost struct {
	server int
	host   gateways.Host
}

func statedBy(servers []gateways.Server) stated {
	out := stated{}
	for i, s := range servers {
		for _, h := range s.Hosts {
			out[h.Name] = append(out[h.Name], statedHost{i, h})
		}
	}
	return out
}

// by returns the hosts of a name that a server has.
func (s stated) by(server int, name string) []statedHost {
	all := s[name]
	from := sort.Search(len(all), func(i int) bool { return all[i].server >= server })
	to := from
	for to < len(all) && all[to].server == server {
		to++
	}
	return all[from:to]
}

// admits reports whether a server has a host of the name that admits VirtualServices of a namespace.
func (s stated) admits(server int, namespace, name string) bool {
	return slices.ContainsFunc(s.by(server, name), func(h statedHost) bool { return h.host.Allows(namespace) })
}

// allows is like admits, but also considers hosts that cover the name, and ignores the case of the name.
func (s stated) allows(server int, namespace, name string) bool {
	for pattern := range model.Covering(strings.ToLower(name)) {
		if s.admits(server, namespace, pattern) {
			return true
		}
	}
	return false
}

// covers reports whether a server has a host that equals or covers a domain.
func (s stated) covers(server int, domain string) bool {
	for pattern := range model.Covering(domain) {
		if len(s.by(server, pattern)) > 0 {
			return true
		}
	}
	return false
}

// over returns the ascending indices of the servers with a host that equals or covers the domain.
func (s stated) over(domain string) (indices []int) {
	for pattern := range model.Covering(domain) {
		for _, h := range s[pattern] {
			indices = append(indices, h.server)
		}
	}
	slices.Sort(indices)
	return slices.Compact(indices)
}

// distinctOf returns the fields distinct and repeats of a route configuration.
func distinctOf(servers []gateways.Server) (distinct map[string][]int, repeats map[int]bool) {
	distinct, repeats = map[string][]int{}, map[int]bool{}
	if len(servers) == 1 {
		distinct[servers[0].Name()] = []int{0}
		return distinct, repeats
	}
	type likeness struct {
		gateway   *model.Gateway
		hosts     string
		protocol  model.Protocol
		redirects bool
	}
	seen := map[likeness]bool{}
	for i, s := range servers {
		var hosts []byte
		for _, h := range s.Hosts {
			hosts = strconv.AppendQuote(strconv.AppendQuote(hosts, h.Namespace), h.Name)
		}
		alike := likeness{s.Gateway, string(hosts), s.Protocol(), s.Spec().GetTls().GetHttpsRedirect()}
		if seen[alike] {
			repeats[i] = true
			continue
		}
		seen[alike] = true
		distinct[s.Name()] = append(distinct[s.Name()], i)
	}
	return distinct, repeats
}
