package edge

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// kinds are the changes of a site. Each returns once the change is in effect.
var kinds = map[string]func(*site, context.Context, *rand.Rand) error{
	"destination":           (*site).moveRoute,
	"weights":               (*site).weigh,
	"virtualservice":        (*site).replaceRoutes,
	"host":                  (*site).moreHosts,
	"server":                (*site).moreServers,
	"certificate":           (*site).rotate,
	"rule-then-route":       (*site).ruleFirst,
	"route-then-rule":       (*site).routeFirst,
	"rule":                  (*site).editRule,
	"endpoints":             (*site).moveEndpoints,
	"service-remade":        (*site).remakeUnrouted,
	"routed-service-remade": (*site).remakeRouted,
	"port-renamed":          (*site).renamePort,
	"dns":                   (*site).routeToName,
}

// Kinds returns the names of all kinds of changes, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// change changes the site at random until the context ends; each kind occurs before any occurs again. A change that has
// begun is ended.
func (s *site) change(ctx context.Context, random *rand.Rand) error {
	names := Kinds()
	for {
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			if ctx.Err() != nil {
				return nil
			}
			began := time.Now()
			s.note("%s", name)
			if err := kinds[name](s, context.WithoutCancel(ctx), random); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			s.m.did(name, time.Since(began))
			if pause(ctx, time.Until(began.Add(s.m.Pace))) != nil {
				return nil
			}
		}
	}
}

// other returns the service that a site's only route does not lead to.
func other(service string) string {
	if service == "a" {
		return "b"
	}
	return "a"
}

// main returns the service of the first route.
func (s *site) main() string { return s.routes[0].service }

// written writes a new edition, and waits until it is in effect.
func (s *site) written(ctx context.Context, routes ...route) error {
	s.route(routes...)
	s.note("edition %d: %v", s.editions, routes)
	if err := s.writeRoutes(); err != nil {
		return err
	}
	return s.settle(ctx, anyone)
}

func (s *site) moveRoute(ctx context.Context, _ *rand.Rand) error {
	return s.written(ctx, route{service: other(s.main()), weight: 100})
}

// weigh divides the requests, changes the weights, one of which may be 0, and leads all to one service.
func (s *site) weigh(ctx context.Context, random *rand.Rand) error {
	for _, weight := range []int{1 + random.IntN(99), 100 * random.IntN(2), random.IntN(101)} {
		s.route(route{service: "a", weight: weight}, route{service: "b", weight: 100 - weight})
		if err := s.writeRoutes(); err != nil {
			return err
		}
		if random.IntN(2) == 0 { // otherwise the next follows at once
			if err := s.settle(ctx, anyone); err != nil {
				return err
			}
		}
	}
	return s.written(ctx, route{service: "a", weight: 100})
}

// replaceRoutes replaces the VirtualService by one with another name, whose files are written and removed in either
// order.
func (s *site) replaceRoutes(ctx context.Context, random *rand.Rand) error {
	old := s.routesFile(s.suffix)
	s.suffix = map[string]string{"x": "y", "y": "x"}[s.suffix]
	s.route(route{service: other(s.main()), weight: 100})
	first := random.IntN(2) == 0
	s.note("edition %d by %s, removed first: %v", s.editions, s.suffix, first)
	if first {
		if err := s.m.remove(old); err != nil {
			return err
		}
	}
	if err := s.writeRoutes(); err != nil {
		return err
	}
	if !first {
		if err := s.m.remove(old); err != nil {
			return err
		}
	}
	return s.settle(ctx, anyone)
}

// moreHosts adds a host to the servers and routes, and removes it once it is served.
func (s *site) moreHosts(ctx context.Context, random *rand.Rand) error {
	host := fmt.Sprintf("x%d.%s", s.editions, s.host)
	s.extra = []string{host}
	s.route(s.routes...)
	writes := []func() error{s.writeGateway, s.writeRoutes}
	random.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	for _, write := range writes {
		if err := write(); err != nil {
			return err
		}
	}
	if err := s.serves(ctx, host); err != nil {
		return err
	}
	if err := s.settle(ctx, anyone); err != nil {
		return err
	}
	for _, p := range []*prober{s.plain, s.secure} {
		s.m.judged(ctx, p, s, host)
	}
	s.extra = nil
	s.route(s.routes...)
	for _, write := range writes {
		if err := write(); err != nil {
			return err
		}
	}
	return s.settle(ctx, anyone)
}

// serves waits until a new host is served over HTTP and HTTPS. Answers before that are not judged.
func (s *site) serves(ctx context.Context, host string) error {
	for _, p := range []*prober{s.m.prober("http", once), s.m.prober("https", once)} {
		err := eventually(ctx, func() error {
			a := p.ask(ctx, host)
			if a.err == nil && a.status != 200 {
				a.err = fmt.Errorf("status %d", a.status)
			}
			return a.err
		})
		if err != nil {
			return fmt.Errorf("%s is not served: %w", host, err)
		}
	}
	return nil
}

// moreServers adds a Gateway with an HTTPS server of its own, and removes it once it is served.
func (s *site) moreServers(ctx context.Context, _ *rand.Rand) error {
	name := s.name + "-more"
	host := fmt.Sprintf("y%d.%s", s.editions, s.host)
	gateway, routes := name+"-gateway.yaml", name+"-routes.yaml"
	if err := s.m.write(gateway, fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: shop}\n"+
		"spec:\n  selector: {app: gateway}\n  servers:\n  - %s\n", name, s.server(host))); err != nil {
		return err
	}
	if err := s.m.write(routes, s.virtualService(name, name, host)); err != nil {
		return err
	}
	p := s.m.prober("https", once)
	if err := eventually(ctx, func() error {
		a := p.ask(ctx, host)
		if a.err == nil && a.status != 200 {
			a.err = fmt.Errorf("status %d", a.status)
		}
		return a.err
	}); err != nil {
		return fmt.Errorf("%s is not served: %w", host, err)
	}
	s.m.judged(ctx, p, s, host)
	if err := s.m.remove(routes); err != nil {
		return err
	}
	return s.m.remove(gateway)
}

// rotate replaces the certificate.
func (s *site) rotate(ctx context.Context, _ *rand.Rand) error {
	serial, err := s.certify()
	if err != nil {
		return err
	}
	p := s.m.prober("https", once)
	if err := eventually(ctx, func() error {
		a := s.m.judged(ctx, p, s, s.host)
		if a.err == nil && a.serial != serial {
			a.err = fmt.Errorf("certificate %d, want %d", a.serial, serial)
		}
		return a.err
	}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial = serial
	return nil
}

// subset adds a subset with a new name, of one version.
func (s *site) subset(random *rand.Rand) string {
	name := fmt.Sprintf("n%d", s.editions)
	s.subsets[name] = fmt.Sprintf("v%d", 1+random.IntN(2))
	return name
}

// ruleFirst defines a subset and routes to it, then routes elsewhere and removes the subset, without a wait in between.
func (s *site) ruleFirst(ctx context.Context, random *rand.Rand) error {
	to := other(s.main())
	name := s.subset(random)
	if err := s.writeRule(); err != nil {
		return err
	}
	if err := s.written(ctx, route{service: to, subset: name, weight: 100}); err != nil {
		return err
	}
	return s.unruled(ctx, name)
}

// routeFirst is ruleFirst with the VirtualService before the DestinationRule that defines its subset.
func (s *site) routeFirst(ctx context.Context, random *rand.Rand) error {
	to := other(s.main())
	name := s.subset(random)
	s.route(route{service: to, subset: name, weight: 100})
	s.note("edition %d to %s %s", s.editions, to, name)
	if err := s.inOrder(ctx, random, s.writeRoutes, s.writeRule); err != nil {
		return err
	}
	if err := s.settle(ctx, anyone); err != nil {
		return err
	}
	return s.unruled(ctx, name)
}

// lateTime is the longest time between a VirtualService and an object that it leads to, which is written after it. It
// is longer than the time for which files are collected, and shorter than the time for which routes wait (push/delta).
const lateTime = 100 * time.Millisecond

// inOrder writes one object after another, at once or lateTime later.
func (s *site) inOrder(ctx context.Context, random *rand.Rand, first, second func() error) error {
	if err := first(); err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(random.IntN(2))*lateTime); err != nil {
		return err
	}
	return second()
}

// unruled routes to the whole service and removes a subset, without a wait in between.
func (s *site) unruled(ctx context.Context, subset string) error {
	s.route(route{service: s.main(), weight: 100})
	s.note("edition %d, without %s", s.editions, subset)
	if err := s.writeRoutes(); err != nil {
		return err
	}
	delete(s.subsets, subset)
	if err := s.writeRule(); err != nil {
		return err
	}
	return s.settle(ctx, anyone)
}

// editRule edits the policy of clusters that requests go to.
func (s *site) editRule(ctx context.Context, _ *rand.Rand) error {
	s.timeout = 5 + s.timeout%5
	if err := s.writeRule(); err != nil {
		return err
	}
	return s.written(ctx, s.routes...)
}

// moveEndpoints replaces all endpoints of the service.
func (s *site) moveEndpoints(ctx context.Context, _ *rand.Rand) error {
	if err := s.written(ctx, route{service: s.main(), weight: 100}); err != nil {
		return err
	}
	return s.replaced(ctx, false, func() error { return s.writeService(s.main()) })
}

// replaced gives the routed service other addresses, and waits until one of these answers.
func (s *site) replaced(ctx context.Context, absent bool, write func() error) error {
	if absent {
		s.push(true)
	}
	before := s.reached()
	v := s.services[s.main()]
	v.pair = (v.pair + 1) % (perService / 2)
	s.push(false)
	if err := write(); err != nil {
		return err
	}
	return s.settle(ctx, func(ip string) bool { return !before[ip] })
}

// removalTime is longer than the time after which a control plane accepts that a file is gone.
const removalTime = 400 * time.Millisecond

// remakeUnrouted deletes the service that is not routed to, and after a while, or at once, makes it again and routes to
// it, in either order.
func (s *site) remakeUnrouted(ctx context.Context, random *rand.Rand) error {
	to := other(s.main())
	if err := s.written(ctx, route{service: s.main(), weight: 100}); err != nil {
		return err
	}
	if err := s.m.remove(s.serviceFile(to)); err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(random.IntN(3))*removalTime/2); err != nil {
		return err
	}
	s.route(route{service: to, weight: 100}) // with the old endpoints, if nobody noticed the deletion
	before := s.reached()
	s.services[to].pair = (s.services[to].pair + 1) % (perService / 2)
	s.push(false)
	writes := []func() error{s.writeRoutes, func() error { return s.writeService(to) }}
	random.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	if err := s.inOrder(ctx, random, writes[0], writes[1]); err != nil {
		return err
	}
	return s.settle(ctx, func(ip string) bool { return !before[ip] })
}

// remakeRouted deletes the only service that is routed to, and makes it again with other endpoints. In between answers
// are 503.
func (s *site) remakeRouted(ctx context.Context, random *rand.Rand) error {
	if err := s.written(ctx, route{service: s.main(), weight: 100}); err != nil {
		return err
	}
	return s.replaced(ctx, true, func() error {
		if err := s.m.remove(s.serviceFile(s.main())); err != nil {
			return err
		}
		if err := pause(ctx, time.Duration(random.IntN(3))*removalTime/2); err != nil {
			return err
		}
		return s.writeService(s.main())
	})
}

// portNames are names of one protocol and of others that the backends speak.
var portNames = []string{"http", "http-web", "http2", "grpc-api"}

// renamePort renames the port of the service that is routed to.
func (s *site) renamePort(ctx context.Context, random *rand.Rand) error {
	s.services[s.main()].portName = portNames[random.IntN(len(portNames))]
	s.note("port of %s is %s", s.main(), s.services[s.main()].portName)
	if err := s.writeService(s.main()); err != nil {
		return err
	}
	return s.written(ctx, s.routes...)
}

// routeToName routes to a new DNS name, whose ServiceEntry is written before or after the route, and back, and removes
// the ServiceEntry at once.
func (s *site) routeToName(ctx context.Context, random *rand.Rand) error {
	back := s.main()
	host := fmt.Sprintf("d%d.%s.dns.test", s.editions, s.name)
	s.entries[host] = fmt.Sprintf("%s.%d", s.m.Net, firstAddress+s.number*perSite+2*perService+s.editions%2)
	s.m.backends.name("n"+host, s.entries[host])
	s.route(route{service: host, weight: 100})
	writes := []func() error{s.writeRoutes, func() error { return s.writeEntry(host, "n"+host) }}
	random.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	if err := s.inOrder(ctx, random, writes[0], writes[1]); err != nil {
		return err
	}
	if err := s.settle(ctx, anyone); err != nil {
		return err
	}
	s.route(route{service: back, weight: 100})
	if err := s.writeRoutes(); err != nil {
		return err
	}
	if err := s.m.remove(entryFile(host)); err != nil {
		return err
	}
	delete(s.entries, host)
	return s.settle(ctx, anyone)
}
