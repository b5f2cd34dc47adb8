package describe

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// service describes the objects with the query's name, the workloads that serve them, and how clients reach their
// hosts.
func (d *describer) service() {
	all := named[*model.Service](d, model.KindService, model.KindServiceEntry)
	if len(all) == 0 {
		return
	}
	var hosts []string
	for _, svc := range all {
		d.out.Objects = append(d.out.Objects, serviceObject(svc))
		for _, h := range svc.Spec.GetHosts() {
			if !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
			}
		}
	}
	served := d.seen(func(_ view.Node, v view.View) bool {
		return slices.ContainsFunc(all, func(svc *model.Service) bool { return slices.Contains(workloadOf(&v).Services.All(), svc.Key) })
	})
	for _, s := range d.bounded(served, maxServers, "workloads") {
		if o, ok := d.from.Origins(s); ok {
			d.add(Inbound, s, inboundOf(s, o)...)
		}
	}
	d.reached(hosts)
}

// serviceObject describes a Service or a ServiceEntry.
func serviceObject(svc *model.Service) Object {
	by := []string{at(svc.Key, "")}
	return Object{Object: svc.Key.String(), Facts: facts(by,
		"hosts", strings.Join(svc.Spec.GetHosts(), ", "), "addresses", strings.Join(svc.Spec.GetAddresses(), ", "),
		"ports", strings.TrimPrefix(portsText(svc), "ports "), "selector", labelsText(svc.Spec.GetSelector()),
		"exported to", strings.Join(svc.Spec.GetExportTo(), ", "), "alias of", svc.Spec.GetAliasFor(),
		"headless", yes(svc.Spec.GetHeadless(), "clients choose the Pod"))}
}

// labelsText returns labels in the form of a selector, key=value,key=value, sorted.
func labelsText(labels map[string]string) string {
	var texts []string
	for key, value := range labels {
		texts = append(texts, key+"="+value)
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// reached describes how clients reach the given hosts. The hosts are full names.
func (d *describer) reached(hosts []string) {
	for _, s := range d.clients(func(view.Node, view.View) bool { return true }) {
		var sections []Section
		for _, of := range d.from.HostOrigins(s, hosts) {
			sections = append(sections, d.hostInFull(s, of)...)
		}
		d.add(Outbound, s, sections...)
	}
}

// host describes how clients reach a host.
func (d *describer) host() {
	for _, s := range d.clients(func(view.Node, view.View) bool { return true }) {
		d.add(Outbound, s, d.hostSections(s, hostNames(d.Name, d.Namespace, s.View.Scope))...)
	}
}

// gateway describes a Gateway, and the listeners and routes of the selected proxies that come from this Gateway.
func (d *describer) gateway() {
	all := named[*model.Gateway](d, model.KindGateway)
	for _, g := range all {
		d.out.Objects = append(d.out.Objects, gatewayObject(g))
	}
	if len(all) == 0 {
		return
	}
	of := func(by []string) bool {
		return slices.ContainsFunc(by, func(name string) bool {
			return slices.ContainsFunc(all, func(g *model.Gateway) bool { return strings.HasPrefix(name, g.Key.String()+" ") })
		})
	}
	for _, s := range d.clients(func(_ view.Node, v view.View) bool {
		return slices.ContainsFunc(all, func(g *model.Gateway) bool { return slices.Contains(v.Scope.Gateways.All(), g.Key) })
	}) {
		o, ok := d.from.Origins(s)
		if !ok {
			continue
		}
		sections := []Section{listenersOf(o)}
		names := d.from.ServedHosts(s)
		if left := len(names) - MaxHosts; left > 0 {
			d.more("%d further hosts are not described: navarchctl describe host HOST describes one", left)
			names = names[:MaxHosts]
		}
		hosts := Section{Name: "routes, the first that matches wins"}
		for _, h := range d.from.HostOrigins(s, names) {
			for _, f := range routesOf(s, h).Facts {
				hosts.Facts = append(hosts.Facts, Fact{h.Name + " " + f.Subject, f.Text, f.By})
			}
		}
		sections = append(sections, hosts)
		for i := range sections {
			sections[i].Facts = slices.DeleteFunc(sections[i].Facts, func(f Fact) bool { return !of(f.By) })
		}
		d.add(Outbound, s, sections...)
	}
}

// gatewayObject describes a Gateway.
func gatewayObject(g *model.Gateway) Object {
	o := Object{Object: g.Key.String(), Facts: facts([]string{at(g.Key, "spec.selector")}, "selector", labelsText(g.Spec.GetSelector()))}
	for i, server := range g.Spec.GetServers() {
		port := server.GetPort()
		text := fmt.Sprintf("port %d %s, hosts %s", port.GetNumber(), port.GetProtocol(), strings.Join(server.GetHosts(), ", "))
		if tls := server.GetTls(); tls != nil {
			if !plain(port, tls) {
				text += ", TLS " + tls.GetMode().String()
			}
			if tls.GetCredentialName() != "" {
				text += " with " + tls.GetCredentialName()
			}
			if tls.GetHttpsRedirect() {
				text += ", redirects to https"
			}
		}
		o.Facts = append(o.Facts, Fact{"server", text, []string{at(g.Key, fmt.Sprintf("spec.servers[%d]", i))}})
	}
	return o
}

// plain reports whether a server has TLS settings, for example httpsRedirect, and no TLS. The mode PASSTHROUGH is the
// default, and has no effect unless the protocol of the port is HTTPS or TLS.
func plain(port *networkingv1.Port, tls *networkingv1.ServerTLSSettings) bool {
	protocol := strings.ToUpper(port.GetProtocol())
	return tls.GetMode() == networkingv1.ServerTLSSettings_PASSTHROUGH && protocol != "HTTPS" && protocol != "TLS"
}

// route describes a VirtualService, and the hosts whose routes it may determine.
func (d *describer) route() {
	all := named[*model.VirtualService](d, model.KindVirtualService)
	if len(all) == 0 {
		return
	}
	var hosts []string
	for _, vs := range all {
		d.out.Objects = append(d.out.Objects, routeObject(vs))
		hosts = append(hosts, vs.Spec.GetHosts()...)
	}
	if left := len(hosts) - maxClaimed; left > 0 {
		d.more("%d further hosts of it are not described: navarchctl describe host HOST describes one", left)
		hosts = hosts[:maxClaimed]
	}
	for _, s := range d.clients(func(view.Node, view.View) bool { return true }) {
		var sections []Section
		for _, of := range d.from.HostOrigins(s, hosts) {
			if involved(of, all) {
				sections = append(sections, d.hostInFull(s, of)...)
			}
		}
		d.add(Outbound, s, sections...)
	}
}

// involved reports whether one of the VirtualServices determines, or may determine, the routes of a host.
func involved(of plan.HostOrigins, all []*model.VirtualService) bool {
	decided := deciding(of)
	for _, c := range of.Claims {
		decided = append(decided, c.VirtualService.Key)
	}
	return slices.ContainsFunc(all, func(vs *model.VirtualService) bool { return slices.Contains(decided, vs.Key) })
}

// routeObject describes a VirtualService.
func routeObject(vs *model.VirtualService) Object {
	gateways := strings.Join(vs.Spec.GetGateways(), ", ")
	if gateways == "" {
		gateways = "mesh"
	}
	o := Object{Object: vs.Key.String(), Facts: facts([]string{at(vs.Key, "")}, "hosts", strings.Join(vs.Spec.GetHosts(), ", "),
		"gateways", gateways, "exported to", strings.Join(vs.Spec.GetExportTo(), ", "))}
	o.Facts = append(o.Facts, Fact{"rules", fmt.Sprintf("%d http, %d tls, %d tcp", len(vs.Spec.GetHttp()), len(vs.Spec.GetTls()),
		len(vs.Spec.GetTcp())), []string{at(vs.Key, "spec")}})
	return o
}
