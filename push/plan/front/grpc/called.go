package grpc

import (
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/push/build/proxyless"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// called contains the resources of one host that clients may call. Scopes (groups of clients with the same
// configuration) share values and never change them.
type called struct {
	host      string
	routes    []routed // one for each port
	listeners []layer.Unit
}

// routed is the route configuration of one port of a host.
type routed struct {
	layer.Unit
	port uint32
	vs   *model.VirtualService // decides the routes; nil without a VirtualService
}

// units returns all resources of the host. The list for nil is empty.
func (c *called) units() []layer.Unit {
	if c == nil {
		return nil
	}
	out := slices.Clone(c.listeners)
	for _, r := range c.routes {
		out = append(out, r.Unit)
	}
	return out
}

func (c *called) equal(o *called) bool {
	return c.host == o.host && slices.Equal(c.routes, o.routes) && slices.Equal(c.listeners, o.listeners)
}

// sharedCalled is the key under which scopes share the resources of a host (layer.Share).
type sharedCalled string

// plan plans the resources of a host again, and replaces its previous resources.
func (f *Front) plan(name string) {
	old := f.called.Get(name)
	now, found, reads := f.callable(name)
	f.problems.Set("host "+name, found)
	if reads {
		f.reading[name] = true
	} else {
		delete(f.reading, name)
	}
	switch {
	case now == nil:
		f.called.Put(name, nil)
	case old == nil || !old.equal(now):
		f.called.Put(name, layer.Share(f.in.Sharing, sharedCalled(name), now, (*called).equal))
	}
}

// callable plans the resources of a host. The result c is nil if clients cannot call the host. The result reads is true
// if the routes of the host depend on labels of the client.
func (f *Front) callable(name string) (c *called, found []input.Problem, reads bool) {
	h := f.hosts.Get(name)
	if h == nil || h.Service == nil {
		return nil, nil, false
	}
	if input.IsWildcard(name) {
		return nil, []input.Problem{input.Warning(h.Service.Key, problem.NotSupported, "spec.hosts",
			name+": clients request whole host names, so they cannot call a wildcard (proxyless gRPC)")}, false
	}
	names := append([]string{name}, slices.DeleteFunc(host.ShortNames(name, f.key.Namespace, f.key.Domain), f.isHost)...)
	c = &called{host: name}
	for p := range h.Ports() {
		im := f.hosts.ImportOf(h, p.GetNumber())
		if im == nil {
			continue
		}
		vs := f.hosts.VirtualServiceFor(name, virtualservice.Mesh, im)
		if vs != nil {
			reads = reads || len(virtualservice.RequestLabelKeys(vs, virtualservice.Mesh)) > 0
			found = append(found, vhost.ProxylessProblems(vs)...)
		}
		u, ok := f.route(name, p.GetNumber(), vs, f.hosts.WithoutInputs(), &found)
		if !ok {
			continue
		}
		c.routes = append(c.routes, routed{u, p.GetNumber(), vs})
		for _, n := range names {
			if u, ok := f.in.Make(proxyless.Client{Name: xds.VirtualHost(n, p.GetNumber()), Route: u.Res.Name}, h.Service.Key, &found); ok {
				c.listeners = append(c.listeners, u)
			}
		}
	}
	return c, found, reads
}

// isHost reports whether a name is the full name of a host with a service.
func (f *Front) isHost(name string) bool {
	h := f.hosts.Get(name)
	return h != nil && h.Service != nil
}

// route builds the route configuration of a host's port for the clients of a perspective (clients with certain labels,
// or without regard to labels). The result is false if the host has no such port, or if the build fails.
func (f *Front) route(name string, port uint32, vs *model.VirtualService, as host.Perspective, found *[]input.Problem) (layer.Unit, bool) {
	spec := vhost.Proxyless{Name: xds.OutboundCluster(port, "", name),
		Spec: vhost.Spec{Host: name, Port: port, Mesh: f.in.Meshes.VirtualHost, Caps: xds.CapFault}}
	if !f.hosts.Routes(&spec.Spec, host.RulesFor(vs, virtualservice.Mesh), as, found) {
		return layer.Unit{}, false
	}
	return f.in.Make(spec, as.Hosts.Get(name).Service.Key, found)
}

// hostOf returns the host whose listener or route configuration has the given name, or "".
func (f *Front) hostOf(of xds.Ref) (name string) {
	if of.Type == xds.Route {
		_, _, _, name, _ = xds.ParseCluster(of.Name)
		return name
	}
	asked, port, _ := cutLast(of.Name, ':')
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return ""
	}
	if f.isHost(asked) {
		return asked
	}
	host.LongNames(asked, f.key.Namespace, f.key.Domain, func(long string) {
		if f.isHost(long) {
			name = long
		}
	})
	return name
}

// cutLast splits s at the last sep.
func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
