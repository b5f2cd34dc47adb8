package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Chain names the objects that decided one filter chain of a listener. Front.Explain returns Chains. Chain is
// comparable.
type Chain struct {
	Names          intern.List[string]      // SNI names; empty: the chain for connections that no other chain matches
	Servers        intern.List[model.Place] // servers of Gateways, in order of precedence
	VirtualService model.Place              // the tcp or tls rule that decides the destination; zero without such a rule
	Service        *model.Service           // the service behind AUTO_PASSTHROUGH; nil for other modes
	Route          string                   // the route configuration; empty: the chain is not HTTP
	Secrets        intern.List[string]      // names of secrets: certificates, and authorities of clients
}

// Naming returns the servers of the chain if the chain needs the named secret, else nil. The result must not be
// modified.
func (c Chain) Naming(secret string) []model.Place {
	if !slices.Contains(c.Secrets.All(), secret) {
		return nil
	}
	return c.Servers.All()
}

// ServedHost is the Spec of a virtual host of a gateway, with the servers of Gateways that serve the virtual host.
// Front.Explain returns ServedHosts.
type ServedHost struct {
	vhost.Spec
	Servers intern.List[model.Place] // the servers that serve the host, in order of precedence
}

var places intern.Table[model.Place]

// Explain implements front.Front: it returns the Spec of a listener or route configuration, and the objects behind the
// resource. For a listener, a Chain for each filter chain follows the Spec, in order. For a route configuration of
// servers, a ServedHost for each virtual host follows the Spec. The result is nil for other resources, and for
// listeners that EnvoyFilters add. The layer has the Specs of such listeners.
func (f *Front) Explain(of xds.Ref, v *host.Variation) []any {
	if of.Type == xds.Route {
		return f.served(of.Name, f.routes.Explain(of.Name, v))
	}
	for _, s := range f.sockets {
		if of.Type == xds.Listener && s.name == of.Name && s.Res != nil {
			return append([]any{s.Unit.Spec}, f.chainsOf(s)...)
		}
	}
	return nil
}

// chainsOf returns the Chains of a listener, in order.
func (f *Front) chainsOf(s *socket) (out []any) {
	for _, d := range s.origins {
		out = append(out, d.explain())
	}
	for _, name := range slices.Sorted(maps.Keys(s.bySNI)) {
		h := f.hosts.Get(name)
		if h == nil || h.Service == nil {
			continue
		}
		var auto []gateways.Server
		for _, server := range s.TLS {
			if server.Auto() && server.Allows(h.Service.Key.Namespace, name) {
				auto = append(auto, server)
			}
		}
		for _, chain := range s.bySNI[name] {
			_, sni, _ := strings.Cut(chain.Name, " for ") // listener.ServerChain
			out = append(out, Chain{Names: strs.List(sni), Servers: placesOf(auto), Service: h.Service})
		}
	}
	return out
}

// served replaces the Spec of each virtual host in specs, the Specs of a route configuration, by a ServedHost.
func (f *Front) served(name string, specs []any) []any {
	c := f.configs[name]
	if c == nil {
		return specs
	}
	for i, spec := range specs {
		if vh, is := spec.(vhost.Spec); is {
			servers := c.serving(vh.Host)
			if vh.Host == blackhole {
				servers = c.servers
			}
			specs[i] = ServedHost{Spec: vh, Servers: placesOf(servers)}
		}
	}
	return specs
}

// chainOrigin contains the servers and rules from which a filter chain was made.
type chainOrigin struct {
	servers []gateways.Server
	names   []string    // SNI names
	rule    model.Place // the tcp or tls rule; zero without such a rule
	route   string      // the route configuration; empty if the chain is not HTTP
	tls     listener.ServerTLS
}

// explain returns the Chain of a filter chain.
func (d chainOrigin) explain() Chain {
	var own []string
	for _, s := range append(slices.Clone(d.tls.Secrets.All()), d.tls.Trust) {
		if s.Name != "" {
			own = append(own, s.Name)
		}
	}
	return Chain{Names: strs.List(d.names...), Servers: placesOf(d.servers), VirtualService: d.rule, Route: d.route,
		Secrets: strs.List(own...)}
}

// placesOf returns the place of each server in its Gateway.
func placesOf(servers []gateways.Server) intern.List[model.Place] {
	var out []model.Place
	for _, s := range servers {
		out = append(out, model.Place{Key: s.Gateway.Key, Field: fmt.Sprintf("spec.servers[%d]", s.Index)})
	}
	return places.List(out...)
}

// Serving implements front.Front: it returns the virtual hosts of the hosts that the predicate selects, each with its
// servers of Gateways. The argument v may be nil.
func (f *Front) Serving(named func(host string) bool, v *host.Variation) []host.Routed {
	all := f.routes.Serving(named, v)
	for i := range all {
		if c := f.configs[all[i].Config]; c != nil {
			all[i].Servers = placesOf(c.serving(all[i].Spec.Host)).All()
		}
	}
	return all
}

// Describe implements front.Front: it calls the function line for each decision, for tests.
func (f *Front) Describe(line func(format string, args ...any)) {
	for _, s := range f.sockets {
		line("listener %s: %v %p", s.name, s.Unit.Spec, s.Res)
	}
	line("reports: %v", f.edge.Reports.Spec)
	f.routes.Describe(line)
}
