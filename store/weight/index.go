package weight

import (
	"strings"

	"navarch.io/navarch/store/model"
)

// Index is the Mesh of a set of records, which it follows record by record. It belongs to one goroutine.
type Index struct {
	clusters map[string]int // by host
	below    map[string]int // of the hosts below a domain (".example.com"); "": of all
	rules    map[target]addition
	applied  map[model.Key]rule
}

// target is a host that rules of a namespace are for; of a wildcard, what follows the star.
type target struct {
	namespace, host string
	wildcard        bool
}

// addition sums up rules of one target: the KiB for each cluster, and those that their own weights have counted.
type addition struct{ each, counted int }

// rule is one rule as it was added.
type rule struct {
	targets   []target
	additions []addition
}

// NewIndex returns the index of no records.
func NewIndex() *Index {
	return &Index{clusters: map[string]int{}, below: map[string]int{}, rules: map[target]addition{}, applied: map[model.Key]rule{}}
}

// Replace follows a change: old records are no longer there, and now is.
func (x *Index) Replace(old, now []model.Record) {
	for _, r := range old {
		switch t := r.(type) {
		case *model.Service:
			x.serve(t, -1)
		case *model.DestinationRule, *model.VirtualService:
			x.withdraw(r.Meta().Key)
		}
	}
	for _, r := range now {
		switch t := r.(type) {
		case *model.Service:
			x.serve(t, 1)
		case *model.DestinationRule:
			x.apply(t.Key, []string{t.Spec.GetHost()}, Each(t))
		case *model.VirtualService:
			if ofSidecars(t) {
				x.apply(t.Key, t.Spec.GetHosts(), Each(t))
			}
		}
	}
}

// Clusters implements Mesh. Domains of more than maxLabels labels count with all below their last maxLabels.
func (x *Index) Clusters(host string) int {
	if domain, is := strings.CutPrefix(host, "*"); is {
		return x.below[indexed(domain)]
	}
	return x.clusters[host]
}

// Dependent implements Mesh.
func (x *Index) Dependent(namespace, host string, ports int) int {
	beyond := func(a addition) int { return max(0, a.each*ports-a.counted) }
	sum := beyond(x.rules[target{namespace, host, false}])
	for i := range len(host) + 1 {
		if i == len(host) || host[i] == '.' || host[i] == '-' {
			sum += beyond(x.rules[target{namespace, host[i:], true}])
		}
	}
	return sum
}

// maxLabels bounds the domains that a host counts for.
const maxLabels = 6

// indexed is the domain, of those that a host counts for, below which is all that is below this one.
func indexed(domain string) string {
	at := strings.IndexByte(domain, '.')
	if at < 0 {
		return ""
	}
	for domain = domain[at:]; strings.Count(domain, ".") > maxLabels; {
		domain = domain[1+strings.IndexByte(domain[1:], '.'):]
	}
	return domain
}

func (x *Index) serve(s *model.Service, sign int) {
	ports := sign * Ports(s)
	for _, h := range s.Spec.GetHosts() {
		add(x.clusters, h, ports)
		add(x.below, "", ports)
		for domain := indexed("." + h); domain != ""; domain = indexed(domain[1:]) {
			if len(domain) < len(h) {
				add(x.below, domain, ports)
			}
		}
	}
}

func add(to map[string]int, key string, n int) {
	if to[key] += n; to[key] == 0 {
		delete(to, key)
	}
}

// apply adds a rule. For which hosts of a wildcard it has been weighed is not known: it counts for each that comes.
func (x *Index) apply(key model.Key, hosts []string, each int) {
	var r rule
	for _, h := range hosts {
		a, t := addition{each: each}, target{namespace: key.Namespace}
		if t.host, t.wildcard = strings.CutPrefix(h, "*"); !t.wildcard {
			a.counted = each * covered(h, x)
		}
		r.targets, r.additions = append(r.targets, t), append(r.additions, a)
		x.rules[t] = addition{x.rules[t].each + a.each, x.rules[t].counted + a.counted}
	}
	x.applied[key] = r
}

func (x *Index) withdraw(key model.Key) {
	r := x.applied[key]
	delete(x.applied, key)
	for i, t := range r.targets {
		sum := addition{x.rules[t].each - r.additions[i].each, x.rules[t].counted - r.additions[i].counted}
		if x.rules[t] = sum; sum == (addition{}) {
			delete(x.rules, t)
		}
	}
}
