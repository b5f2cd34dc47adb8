package normal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// untranslatedLabel is a label that Knative sets on the Service of a gateway. With it, the gateway binds the ports that
// a Gateway states, not the Service's target ports for them (istio: pilot/pkg/model/gateway.go,
// DisableGatewayPortTranslationLabel). Any value counts.
const untranslatedLabel = "experimental.istio.io/disable-gateway-port-translation"

// exportToAnnotation lists the namespaces that see a Service.
const exportToAnnotation = "networking.istio.io/exportTo"

// wellKnownPorts are the ports of SMTP, DNS, MySQL and MongoDB. If such a port states no known protocol, it is TCP, and
// proxies do not detect its protocol.
var wellKnownPorts = map[int32]bool{25: true, 53: true, 3306: true, 27017: true}

// protocolNames maps the name of a protocol to its value. The name is the prefix of a port's name or appProtocol, or
// the protocol of a ServiceEntry's port. MySQL and Redis are plain TCP, as in Istio with the defaults of
// PILOT_ENABLE_MYSQL_FILTER and PILOT_ENABLE_REDIS_FILTER.
var protocolNames = map[string]model.Protocol{
	"http": model.Protocol_PROTOCOL_HTTP, "http_proxy": model.Protocol_PROTOCOL_HTTP,
	"http2": model.Protocol_PROTOCOL_HTTP2, "grpc": model.Protocol_PROTOCOL_GRPC,
	"grpc-web": model.Protocol_PROTOCOL_GRPC_WEB, "https": model.Protocol_PROTOCOL_HTTPS,
	"tls": model.Protocol_PROTOCOL_TLS, "tcp": model.Protocol_PROTOCOL_TCP, "udp": model.Protocol_PROTOCOL_UDP,
	"mongo": model.Protocol_PROTOCOL_MONGO, "redis": model.Protocol_PROTOCOL_TCP, "mysql": model.Protocol_PROTOCOL_TCP,
}

// protocolOf returns the protocol of a Service's port. A UDP port stays UDP. For other ports, the prefix of appProtocol
// decides. If appProtocol is not set, the prefix of the port's name decides. Without a known prefix, a port in
// wellKnownPorts is TCP, and proxies detect the protocol of any other port
// (https://istio.io/latest/docs/ops/configuration/traffic-management/protocol-selection/).
func protocolOf(p corev1.ServicePort) model.Protocol {
	if p.Protocol == corev1.ProtocolUDP {
		return model.Protocol_PROTOCOL_UDP
	}
	name := p.Name
	if p.AppProtocol != nil {
		name = *p.AppProtocol
		switch name {
		case "kubernetes.io/h2c":
			return model.Protocol_PROTOCOL_HTTP2
		case "kubernetes.io/ws":
			return model.Protocol_PROTOCOL_HTTP
		case "kubernetes.io/wss":
			return model.Protocol_PROTOCOL_HTTPS
		}
	}
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "grpc-web") {
		return model.Protocol_PROTOCOL_GRPC_WEB
	}
	prefix, _, _ := strings.Cut(name, "-")
	if protocol, ok := protocolNames[prefix]; ok {
		return protocol
	}
	if wellKnownPorts[p.Port] {
		return model.Protocol_PROTOCOL_TCP
	}
	return model.Protocol_PROTOCOL_AUTO
}

// serviceRecords returns the records of a Service: the service itself, its endpoint if it is of type ExternalName, and
// the network gateways that it provides.
func serviceRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	svc := &corev1.Service{}
	if !r.kubernetes(obj, svc) {
		return nil
	}
	spec := &model.ServiceSpec{
		Hosts:           []string{n.fqdn(obj.ID.Name, obj.ID.Namespace)},
		Ports:           servicePorts(r, svc),
		Selector:        svc.Spec.Selector,
		PublishNotReady: svc.Spec.PublishNotReadyAddresses,
		Distribution:    distribution(r, deref(svc.Spec.TrafficDistribution), obj, ctx),
		NodeLocal:       svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
	}
	_, spec.UntranslatedPorts = obj.Labels[untranslatedLabel]
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP { // a setting for kube-proxy, which Istio's control plane ignores too
		r.warnf(problem.NoEffect, "spec.sessionAffinity", "ClientIP does not hold for clients with a sidecar, as with Istio: consistentHash "+
			"of a DestinationRule (useSourceIp) keeps a client to an endpoint")
	}
	stated := []string{}
	if a, ok := obj.Annotations[exportToAnnotation]; ok && strings.TrimSpace(a) != "" {
		stated = strings.Split(a, ",")
	}
	path := fmt.Sprintf("metadata.annotations[%s]", exportToAnnotation)
	spec.ExportTo = visible(r.exportTo(path, stated, ctx.Mesh().GetDefaultServiceExportTo(), obj.ID.Namespace))
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return externalName(r, obj, svc, spec)
	}
	clusterIPs := svc.Spec.ClusterIPs
	if len(clusterIPs) == 0 && svc.Spec.ClusterIP != "" {
		clusterIPs = []string{svc.Spec.ClusterIP}
	}
	for i, ip := range clusterIPs {
		switch {
		case ip == corev1.ClusterIPNone:
			spec.Headless = true
		case !isIP(ip):
			r.errorf(fmt.Sprintf("spec.clusterIPs[%d]", i), "%q is no IP address", ip)
		default:
			spec.Addresses = append(spec.Addresses, ip)
		}
	}
	if len(clusterIPs) == 0 {
		r.warnf(problem.NoEffect, "spec.clusterIP", "no address: not reachable by address, as a Service that was never given one")
	}
	n.headless(r, spec, obj.Annotations)
	return append(r.record(model.KindService, obj, obj.ID.Name, spec), n.networkGateways(r, obj, svc, ctx)...)
}

// listenersAnnotation with the value "merged" configures one listener for each TCP port of a headless Service.
const listenersAnnotation = "navarch.io/headless-listeners"

// headless sets the fields of spec that apply to headless Services only. It warns of a listenersAnnotation without
// effect.
func (n *Normalizer) headless(r *report, spec *model.ServiceSpec, annotations map[string]string) {
	spec.LocalNames = spec.Headless && n.LocalNames
	spec.MergedListeners = spec.Headless && n.MergedListeners
	path := "metadata.annotations[" + listenersAnnotation + "]"
	switch stated := annotations[listenersAnnotation]; {
	case stated == "":
	case stated != "merged":
		r.warnf(problem.NoEffect, path, "%q: want merged", stated)
	case !spec.Headless:
		r.warnf(problem.NoEffect, path, "the Service is not headless: it has one listener for each port anyway")
	default:
		spec.MergedListeners = true
	}
}

// externalName returns the records of a Service of type ExternalName. If the external name is a service of the mesh,
// the Service is an alias of that service. For any other external name, clients connect to the addresses that DNS has
// for it.
func externalName(r *report, obj *object.Object, svc *corev1.Service, spec *model.ServiceSpec) []model.Record {
	name := strings.TrimSuffix(strings.ToLower(svc.Spec.ExternalName), ".")
	if wrong := plainHost(name); wrong != "" {
		r.errorf("spec.externalName", "%q %s", svc.Spec.ExternalName, wrong)
		return nil
	}
	spec.Resolution, spec.External, spec.Selector, spec.AliasFor = model.Resolution_RESOLUTION_DNS, true, nil, name
	for _, p := range spec.Ports { // there is no Pod that could define target ports
		p.TargetNumber, p.TargetName = p.Number, ""
	}
	endpoints := &model.EndpointsSpec{Hosts: spec.Hosts, Ports: endpointPorts(spec.Ports),
		Endpoints: []*model.Endpoint{{Address: name, Namespace: obj.ID.Namespace}}}
	return append(r.record(model.KindService, obj, obj.ID.Name, spec),
		r.record(model.KindEndpoints, obj, externalNamePrefix+obj.ID.Name, endpoints)...)
}

// servicePorts returns the ports of a Service, sorted. SCTP ports are omitted with a warning.
func servicePorts(r *report, svc *corev1.Service) []*model.ServicePort {
	var ports []*model.ServicePort
	names, numbers := map[string]bool{}, map[string]bool{}
	for i, p := range svc.Spec.Ports {
		at := fmt.Sprintf("spec.ports[%d]", i)
		if p.Protocol == corev1.ProtocolSCTP {
			r.warnf(problem.NotSupported, at+".protocol", "SCTP is not proxied: the port is left out")
			continue
		}
		r.port(at+".port", uint32(p.Port))
		if names[p.Name] {
			r.duplicatef(at+".name", "%q is used twice", p.Name)
		}
		number := fmt.Sprint(p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP))
		if numbers[number] {
			r.duplicatef(at+".port", "port %d is used twice", p.Port)
		}
		names[p.Name], numbers[number] = true, true
		port := &model.ServicePort{Number: uint32(p.Port), Name: p.Name, Protocol: protocolOf(p), TargetNumber: uint32(p.Port)}
		switch {
		case p.TargetPort.Type == intstr.String:
			port.TargetNumber, port.TargetName = 0, p.TargetPort.StrVal
		case p.TargetPort.IntVal != 0:
			port.TargetNumber = uint32(p.TargetPort.IntVal)
			r.port(at+".targetPort", port.TargetNumber)
		}
		ports = append(ports, port)
	}
	sortPorts(ports)
	return ports
}

// sortPorts sorts ports by number, name and protocol.
func sortPorts(ports []*model.ServicePort) {
	slices.SortFunc(ports, func(a, b *model.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol))
	})
}

// endpointPorts returns the ports of endpoints that state no ports of their own, given the ports of their service.
func endpointPorts(ports []*model.ServicePort) []*model.EndpointPort {
	var out []*model.EndpointPort
	for _, p := range ports {
		out = append(out, &model.EndpointPort{Name: p.Name, Number: cmp.Or(p.TargetNumber, p.Number), Service: p.Number})
	}
	return out
}

// visible converts an exportTo list into the form of ServiceSpec. In ServiceSpec an empty list means that no namespace
// sees the service.
func visible(exportTo []string) []string {
	if len(exportTo) == 1 && exportTo[0] == "~" {
		return nil
	}
	return exportTo
}
