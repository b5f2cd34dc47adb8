package normal

import (
	"iter"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// index answers what services and subsets there are.
type index interface {
	named(host string) []*model.Service                        // those of exactly this host, the oldest first where that is known
	known(host string) bool                                    // whether a service has the host, itself or by a wildcard
	subsetsOf(host string) (names map[string]bool, found bool) // those of all rules for a host, wildcard rules among them
}

// Known finds records by the hosts that they name; wildcards are literal there. A snapshot does.
type Known interface {
	ByHost(kind model.Kind, host string) iter.Seq[model.Record]
}

// References are warnings of what one record names and is not known: services of destinations, their ports, subsets. It looks at what the
// record names, not at all there is.
func References(r model.Record, known Known) []object.Problem {
	switch t := r.(type) {
	case *model.VirtualService:
		return unknownDestinations(t, byHost{known})
	case *model.DestinationRule:
		return unknownHost(t, byHost{known})
	}
	return nil
}

func unknownHost(rule *model.DestinationRule, x index) []object.Problem {
	if strings.HasPrefix(rule.Spec.Host, "*") || x.known(rule.Spec.Host) {
		return nil
	}
	return []object.Problem{between(rule, problem.NotFound, "spec.host", "no service has host %q", rule.Spec.Host)}
}

func unknownDestinations(vs *model.VirtualService, x index) []object.Problem {
	var out []object.Problem
	destinations(vs.Spec, func(path string, d *networkingv1.Destination) {
		if !x.known(d.Host) {
			out = append(out, between(vs, problem.NotFound, path+".host", "no service has host %q: requests to it fail", d.Host))
			return
		}
		services := x.named(d.Host)
		if d.Port == nil && len(services) > 0 && len(services[0].Spec.Ports) == 0 {
			out = append(out, between(vs, problem.NotFound, path+".port", "service %q has no ports", d.Host))
		} else if d.Port != nil && len(services) > 0 && !hasPort(services, d.Port.Number) {
			out = append(out, between(vs, problem.NotFound, path+".port.number", "service %q has no port %d", d.Host, d.Port.Number))
		}
		if d.Subset == "" {
			return
		}
		subsets, found := x.subsetsOf(d.Host)
		switch {
		case !found:
			out = append(out, between(vs, problem.NotFound, path+".subset", "subset %q: no DestinationRule for host %q", d.Subset, d.Host))
		case !subsets[d.Subset]:
			out = append(out, between(vs, problem.NotFound, path+".subset", "no DestinationRule for host %q has a subset %q", d.Host, d.Subset))
		}
	})
	return out
}

func hasPort(services []*model.Service, number uint32) bool {
	for _, s := range services {
		for _, p := range s.Spec.Ports {
			if p.Number == number {
				return true
			}
		}
	}
	return false
}

// byHost is an index over records that are found by their hosts.
type byHost struct{ Known }

func (x byHost) named(host string) (all []*model.Service) {
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range x.ByHost(kind, host) {
			if s, is := r.(*model.Service); is {
				all = append(all, s)
			}
		}
	}
	return all
}

func (x byHost) known(host string) bool {
	for of := range covering(host) {
		if len(x.named(of)) > 0 {
			return true
		}
	}
	return false
}

func (x byHost) subsetsOf(host string) (names map[string]bool, found bool) {
	names = map[string]bool{}
	for of := range covering(host) {
		for r := range x.ByHost(model.KindDestinationRule, of) {
			rule, is := r.(*model.DestinationRule)
			if !is {
				continue
			}
			found = true
			for _, s := range rule.Spec.Subsets {
				names[s.Name] = true
			}
		}
	}
	return names, found
}

// covering is a host, and every wildcard that covers it (coveredBy): a host has 253 characters at most.
func covering(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(host) {
			return
		}
		name := strings.TrimPrefix(host, "*")
		for i := range len(name) + 1 {
			if of := "*" + name[i:]; of != host && !yield(of) {
				return
			}
		}
	}
}
