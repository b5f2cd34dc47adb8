package normal

import (
	"cmp"
	"fmt"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// serviceEntryRecords returns the records of a ServiceEntry: the service, and the endpoints that the ServiceEntry
// states. If the entry states addresses and no address is usable, there are no records.
func serviceEntryRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	entry := &networkingv1.ServiceEntry{}
	if !r.spec(obj, entry) {
		return nil
	}
	serviceEntryHosts(r, entry)
	serviceEntryShape(r, entry)
	n.addressesNeeded(r, obj, entry)
	r.checkExportTo(entry.ExportTo, obj.ID.Namespace, true)
	spec := &model.ServiceSpec{
		Ports:     serviceEntryPorts(r, entry),
		Addresses: n.stated(r, obj, entry, ctx),
		Selector:  entry.WorkloadSelector.GetLabels(),
		ExportTo: visible(capped(r, obj, r.exportTo("spec.exportTo", entry.ExportTo, ctx.Mesh().GetDefaultServiceExportTo(),
			obj.ID.Namespace), ctx)),
		External:        entry.Location == networkingv1.ServiceEntry_MESH_EXTERNAL,
		SubjectAltNames: sortedSet(entry.SubjectAltNames),
		Distribution:    distribution(r, "", obj, ctx),
	}
	for _, h := range entry.Hosts {
		spec.Hosts = append(spec.Hosts, hostOf(h))
	}
	spec.Hosts = sortedSet(spec.Hosts)
	switch entry.Resolution {
	case networkingv1.ServiceEntry_STATIC:
		spec.Resolution = model.Resolution_RESOLUTION_EDS
	case networkingv1.ServiceEntry_DNS:
		spec.Resolution = model.Resolution_RESOLUTION_DNS
	case networkingv1.ServiceEntry_DNS_ROUND_ROBIN:
		spec.Resolution = model.Resolution_RESOLUTION_DNS_ROUND_ROBIN
	case networkingv1.ServiceEntry_NONE:
		spec.Resolution = model.Resolution_RESOLUTION_NONE
	case networkingv1.ServiceEntry_DYNAMIC_DNS:
		spec.Resolution = model.Resolution_RESOLUTION_DYNAMIC_DNS
	default:
		r.unsupportedf("spec.resolution", "%v is not acted on yet", entry.Resolution)
	}
	if r.spoiled {
		return nil
	}
	// Without its stated addresses, the service would accept connections to its ports for any destination.
	if len(entry.Addresses) > 0 && len(spec.Addresses) == 0 {
		return nil
	}
	spec.Automatic = n.automatic(r, obj, entry, ctx)
	records := r.record(model.KindServiceEntry, obj, obj.ID.Name, spec)
	return append(records, n.inlineEndpoints(r, obj, entry, spec, ctx)...)
}

// addressesNeeded warns of each TCP port of a ServiceEntry that has no address. Connections to such a port cannot be
// distinguished from connections to other hosts.
func (n *Normalizer) addressesNeeded(r *report, obj *object.Object, entry *networkingv1.ServiceEntry) {
	if len(entry.Addresses) > 0 || len(n.Automatic) > 0 && len(automaticHosts(obj, entry)) > 0 {
		return
	}
	for i, p := range entry.Ports {
		if p.Protocol == "" || strings.EqualFold(p.Protocol, "TCP") {
			r.analysef(problem.ServiceEntryAddressesRequired, problem.Required, fmt.Sprintf("spec.ports[%d]", i),
				"without spec.addresses, all TCP connections to port %d count as connections to this host", p.Number)
		}
	}
}

// inlineEndpoints returns the Endpoints records of a ServiceEntry. If the entry states endpoints, one record has the
// endpoints of all hosts, or several records if the list is long. If the hosts themselves are resolved by DNS, each
// host has its own record. For other entries the result is nil.
func (n *Normalizer) inlineEndpoints(r *report, obj *object.Object, entry *networkingv1.ServiceEntry, spec *model.ServiceSpec,
	ctx Lookup) []model.Record {
	byName := model.ServiceEntryPrefix + obj.ID.Name
	dns := spec.Resolution == model.Resolution_RESOLUTION_DNS || spec.Resolution == model.Resolution_RESOLUTION_DNS_ROUND_ROBIN
	switch {
	case spec.Resolution == model.Resolution_RESOLUTION_NONE:
		return nil
	case len(entry.Endpoints) > 0:
		all := &model.EndpointsSpec{Hosts: spec.Hosts, Ports: endpointPorts(spec.Ports)}
		for _, e := range entry.Endpoints {
			all.Endpoints = append(all.Endpoints, n.inlineEndpoint(obj.ID, e))
		}
		all.Endpoints = sortEndpoints(all.Endpoints)
		return r.split(obj, byName, all)
	case !dns || len(spec.Selector) > 0:
		return nil
	}
	var records []model.Record
	for _, host := range spec.Hosts {
		name := byName
		if len(spec.Hosts) > 1 {
			name += ":" + host
		}
		records = append(records, r.record(model.KindEndpoints, obj, name, &model.EndpointsSpec{Hosts: []string{host},
			Ports: endpointPorts(spec.Ports), Endpoints: []*model.Endpoint{{Address: host, Namespace: obj.ID.Namespace}}})...)
	}
	return records
}

// inlineEndpoint returns an endpoint that an object states. As in istiod, the endpoint belongs to the object's
// cluster (pilot/pkg/serviceregistry/serviceentry/conversion.go, convertEndpoint).
func (n *Normalizer) inlineEndpoint(of object.ID, e *networkingv1.WorkloadEntry) *model.Endpoint {
	tls, stated := e.Labels["security.istio.io/tlsMode"]
	return &model.Endpoint{
		Address: e.Address, Labels: e.Labels, Namespace: of.Namespace, ServiceAccount: e.ServiceAccount, Cluster: n.clusterOf(of),
		Network: cmp.Or(e.Network, e.Labels[model.NetworkLabel]), Locality: cmp.Or(e.Locality, model.StatedLocality(e.Labels)),
		Weight: e.Weight, Ports: e.Ports,
		// As in istiod, an endpoint with a service account and without a stated mode has mTLS.
		Mtls: tls == "istio" || !stated && e.ServiceAccount != "",
	}
}

// serviceEntryPorts returns the ports of a ServiceEntry, sorted.
func serviceEntryPorts(r *report, entry *networkingv1.ServiceEntry) []*model.ServicePort {
	if len(entry.Ports) == 0 {
		r.warnf(problem.NoEffect, "spec.ports", "is empty: no host of the entry can be reached")
	}
	var ports []*model.ServicePort
	names, numbers := map[string]bool{}, map[uint32]bool{}
	for i, p := range entry.Ports {
		at := fmt.Sprintf("spec.ports[%d]", i)
		if p.Name == "" {
			r.requiredf(at+".name", "must not be empty")
		} else if names[p.Name] {
			r.duplicatef(at+".name", "%q is used twice", p.Name)
		} else {
			r.name(at+".name", p.Name)
		}
		r.port(at+".number", p.Number)
		if numbers[p.Number] {
			r.duplicatef(at+".number", "port %d is used twice", p.Number)
		}
		if p.TargetPort != 0 {
			r.port(at+".targetPort", p.TargetPort)
		}
		protocol, known := protocolNames[strings.ToLower(p.Protocol)]
		if !known && p.Protocol != "" {
			r.errorf(at+".protocol", "unknown protocol %q", p.Protocol)
		}
		names[p.Name], numbers[p.Number] = true, true
		if dynamic := entry.Resolution == networkingv1.ServiceEntry_DYNAMIC_DNS; dynamic && !model.NamesServer(protocol) {
			r.refusef(problem.Invalid, at+".protocol", "%q carries no host name to resolve: "+
				"resolution DYNAMIC_DNS needs HTTP, HTTP2, GRPC, HTTPS or TLS", p.Protocol)
		}
		if known && !model.NamesServer(protocol) && len(entry.Hosts) > 1 && entry.Resolution != networkingv1.ServiceEntry_NONE {
			r.refusef(problem.Invalid, at+".protocol", "%q carries no host name to tell the %d hosts apart: "+
				"want one host, or HTTP, HTTP2, GRPC, HTTPS or TLS", p.Protocol, len(entry.Hosts))
		}
		ports = append(ports, &model.ServicePort{Number: p.Number, Name: p.Name, Protocol: protocol,
			TargetNumber: cmp.Or(p.TargetPort, p.Number)})
	}
	sortPorts(ports)
	return ports
}

// maxAddresses is the largest number of addresses of a ServiceEntry. In route configurations, each host of the
// ServiceEntry has all these addresses as domains.
const maxAddresses = 4096

// serviceEntryHosts validates the hosts and addresses of a ServiceEntry.
func serviceEntryHosts(r *report, entry *networkingv1.ServiceEntry) {
	if len(entry.Hosts) == 0 {
		r.requiredf("spec.hosts", "at least one host is needed")
	}
	dns := entry.Resolution == networkingv1.ServiceEntry_DNS || entry.Resolution == networkingv1.ServiceEntry_DNS_ROUND_ROBIN
	for i, h := range entry.Hosts {
		at := fmt.Sprintf("spec.hosts[%d]", i)
		switch wrong := wildcardHost(h); {
		case h == "*":
			r.errorf(at, `"*" would match every host`)
		case wrong != "":
			r.errorf(at, "%q %s", h, wrong)
		case entry.Resolution == networkingv1.ServiceEntry_DYNAMIC_DNS && !strings.HasPrefix(h, "*"):
			r.refusef(problem.Invalid, at, "%q is no wildcard: resolution DYNAMIC_DNS is for these alone", h)
		case dns && strings.HasPrefix(h, "*") && len(entry.Endpoints) == 0:
			r.errorf(at, "%q has no address to resolve: with resolution %v and no endpoints a host must not be a wildcard", h, entry.Resolution)
		default:
			r.hostname(at, h)
		}
	}
	if n := len(entry.Addresses); n > maxAddresses {
		r.errorf("spec.addresses", "has %d addresses: want at most %d", n, maxAddresses)
		return
	}
	for i, a := range entry.Addresses {
		if wrong := addressOrPrefix(a); wrong != "" {
			r.errorf(fmt.Sprintf("spec.addresses[%d]", i), "%q %s", a, wrong)
		} else if strings.Contains(a, "/") && entry.Resolution != networkingv1.ServiceEntry_NONE &&
			entry.Resolution != networkingv1.ServiceEntry_STATIC {
			r.refusef(problem.Invalid, fmt.Sprintf("spec.addresses[%d]", i), "%q: CIDR blocks go with resolution NONE or STATIC", a)
		}
	}
}

// serviceEntryShape validates the combination of resolution, endpoints and selector
// (https://istio.io/latest/docs/reference/config/networking/service-entry/#ServiceEntry-Resolution).
func serviceEntryShape(r *report, entry *networkingv1.ServiceEntry) {
	if entry.WorkloadSelector != nil {
		r.selector("spec.workloadSelector.labels", entry.WorkloadSelector.Labels)
		if len(entry.Endpoints) > 0 {
			r.errorf("spec.workloadSelector", "cannot be combined with endpoints")
		}
		if len(entry.WorkloadSelector.Labels) == 0 {
			r.warnf(problem.NoEffect, "spec.workloadSelector.labels", "is empty: the selector selects no workload, and the hosts have no endpoints")
		}
		if entry.Resolution == networkingv1.ServiceEntry_NONE {
			r.warnf(problem.NoEffect, "spec.workloadSelector", "with resolution NONE no endpoints are used, and requests go where they were "+
				"sent: want STATIC or DNS")
		}
		if entry.Resolution == networkingv1.ServiceEntry_DNS_ROUND_ROBIN {
			r.unsupportedf("spec.workloadSelector", "selected workloads are not resolved: want resolution STATIC, not %v", entry.Resolution)
		}
	}
	if entry.Resolution == networkingv1.ServiceEntry_NONE && len(entry.Endpoints) > 0 {
		r.errorf("spec.endpoints", "with resolution NONE no endpoints are used: want STATIC or DNS")
	}
	if entry.Resolution == networkingv1.ServiceEntry_DYNAMIC_DNS && len(entry.Endpoints) > 0 {
		r.refusef(problem.Invalid, "spec.endpoints", "with resolution DYNAMIC_DNS no endpoints are used: the names that clients ask for "+
			"are resolved")
	}
	if entry.Resolution == networkingv1.ServiceEntry_STATIC && len(entry.Endpoints) == 0 && entry.WorkloadSelector == nil {
		r.warnf(problem.NoEffect, "spec.endpoints", "is empty: with resolution STATIC the hosts have no endpoints")
	}
	if entry.Resolution == networkingv1.ServiceEntry_DNS_ROUND_ROBIN && len(entry.Endpoints) > 1 {
		r.errorf("spec.endpoints", "resolution DNS_ROUND_ROBIN has one endpoint at most, not %d", len(entry.Endpoints))
	}
	ports := map[string]bool{}
	for _, p := range entry.Ports {
		ports[p.GetName()] = true
	}
	for i, e := range entry.Endpoints {
		at := fmt.Sprintf("spec.endpoints[%d]", i)
		r.labels(at+".labels", e.Labels)
		serviceEntryAddress(r, at, entry.Resolution, len(entry.Ports), e)
		for _, name := range sortedKeys(e.Ports) {
			if !ports[name] {
				r.errorf(at+".ports["+name+"]", "no port of that name in spec.ports")
			}
			r.port(at+".ports["+name+"]", e.Ports[name])
		}
	}
}

// isSocketPath reports whether a path, without the prefix unix://, is absolute or the name of an abstract socket.
func isSocketPath(path string) bool {
	return strings.HasPrefix(path, "/") || strings.HasPrefix(path, "@")
}

// serviceEntryAddress validates the address of one endpoint of a ServiceEntry. The parameter ports is the number of
// ports that the ServiceEntry has.
func serviceEntryAddress(r *report, at string, resolution networkingv1.ServiceEntry_Resolution, ports int, e *networkingv1.WorkloadEntry) {
	path, isUnix := strings.CutPrefix(e.Address, "unix://")
	switch {
	case e.Address == "" && e.Network == "":
		r.requiredf(at+".address", "must not be empty without a network")
	case e.Address == "": // reachable through its network's gateways (istio: pilot/pkg/xds/endpoints/ep_filters.go)
	case isUnix && (resolution != networkingv1.ServiceEntry_STATIC || len(e.Ports) > 0):
		r.errorf(at+".address", "a Unix socket needs resolution STATIC and has no ports")
	case isUnix && !isSocketPath(path):
		r.errorf(at+".address", "%q is not an absolute path", path)
	case isUnix && ports != 1:
		r.refusef(problem.Invalid, at+".address", "a Unix socket goes with one port in spec.ports, not %d", ports)
	case isUnix:
	case resolution == networkingv1.ServiceEntry_STATIC && !isIP(e.Address):
		r.errorf(at+".address", "%q is no IP address: with resolution STATIC it must be one", e.Address)
	case resolution != networkingv1.ServiceEntry_STATIC && plainHost(e.Address) != "":
		r.errorf(at+".address", "%q %s", e.Address, plainHost(e.Address))
	}
}
