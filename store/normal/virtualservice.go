package normal

import (
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// virtualServiceRecords returns the record of a VirtualService, with all names resolved in the namespace of the
// VirtualService. A VirtualService without hosts is a delegate, and has no gateways.
func virtualServiceRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	defer r.whole("rules")
	vs := &networkingv1.VirtualService{}
	if !r.spec(obj, vs) {
		return nil
	}
	checkVirtualService(r, vs)
	if r.spoiled {
		return nil
	}
	ns := obj.ID.Namespace
	for i, h := range vs.Hosts {
		vs.Hosts[i] = n.fqdn(h, ns)
	}
	vs.Hosts = sortedSet(vs.Hosts)
	if len(vs.Gateways) == 0 && len(vs.Hosts) > 0 {
		vs.Gateways = []string{"mesh"}
	}
	vs.Gateways = gateways(vs.Gateways, ns)
	r.checkExportTo(vs.ExportTo, ns, false)
	vs.ExportTo = r.exportTo("spec.exportTo", vs.ExportTo, ctx.Mesh().GetDefaultVirtualServiceExportTo(), ns)
	Destinations(vs, func(_ string, d *networkingv1.Destination) { d.Host = n.fqdn(d.Host, ns) })
	for _, h := range vs.Http {
		for _, m := range h.Match {
			m.Gateways = gateways(m.Gateways, ns)
		}
		if h.Delegate != nil && h.Delegate.Namespace == "" {
			h.Delegate.Namespace = ns
		}
	}
	for _, t := range vs.Tls {
		for _, m := range t.Match {
			m.Gateways = gateways(m.Gateways, ns)
			for i, sni := range m.SniHosts {
				m.SniHosts[i] = hostOf(sni)
			}
		}
	}
	for _, t := range vs.Tcp {
		for _, m := range t.Match {
			m.Gateways = gateways(m.Gateways, ns)
		}
	}
	warnDead(r, vs)
	if r.spoiled {
		return nil
	}
	return r.record(model.KindVirtualService, obj, obj.ID.Name, vs)
}

// gateways returns the resolved names of Gateways, sorted and without duplicates.
func gateways(names []string, namespace string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, gateway(name, namespace))
	}
	return sortedSet(out)
}

// Destinations calls the function fn with each destination of a VirtualService and with the path of the destination,
// such as spec.http[0].mirror. The order is http, tls, tcp. Missing destinations are skipped. The function may change
// the destination. The argument vs must not be nil.
func Destinations(vs *networkingv1.VirtualService, fn func(path string, d *networkingv1.Destination)) {
	call := func(d *networkingv1.Destination, path ...string) {
		if d != nil {
			fn(strings.Join(path, ""), d)
		}
	}
	for i, h := range vs.Http {
		rule := "spec.http[" + strconv.Itoa(i)
		for j, d := range h.Route {
			call(d.GetDestination(), rule, "].route[", strconv.Itoa(j), "].destination")
		}
		call(h.Mirror, rule, "].mirror")
		for j, m := range h.Mirrors {
			call(m.GetDestination(), rule, "].mirrors[", strconv.Itoa(j), "].destination")
		}
	}
	for i, t := range vs.Tls {
		for j, d := range t.Route {
			call(d.GetDestination(), "spec.tls[", strconv.Itoa(i), "].route[", strconv.Itoa(j), "].destination")
		}
	}
	for i, t := range vs.Tcp {
		for j, d := range t.Route {
			call(d.GetDestination(), "spec.tcp[", strconv.Itoa(i), "].route[", strconv.Itoa(j), "].destination")
		}
	}
}
