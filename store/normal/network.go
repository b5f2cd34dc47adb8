package normal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	meshv1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// This file determines the network of an endpoint, and the gateways through which other networks reach that network.
// The rules are those of istiod (pilot/pkg/serviceregistry/kube/controller/network.go, pilot/pkg/model/network.go).

const (
	gatewayPortLabel       = "networking.istio.io/gatewayPort"
	nodeSelectorAnnotation = "traffic.istio.io/nodeSelector"
	gatewayPort            = 15443 // port of gateways that do not state a port
)

// network returns the network of one endpoint of an object. The network label of the endpoint's Pod has the first
// priority. The network label of the system namespace in the object's cluster has the second. The next ones are
// meshNetworks by cluster, meshNetworks by address, and Options.Network. For an endpoint without a Pod, the parameter
// pod is nil.
func (n *Normalizer) network(r *report, of object.ID, pod *Pod, address string, ctx Lookup) string {
	if pod != nil && pod.Labels[model.NetworkLabel] != "" {
		return pod.Labels[model.NetworkLabel]
	}
	system := of.SameOrigin(object.ID{Kind: "Namespace", Name: n.SystemNamespace})
	r.ref(system)
	if ns := ctx.Namespace(system); ns != nil && ns.Network != "" {
		return ns.Network
	}
	if name := networkFromCluster(ctx.Networks(), n.clusterOf(of)); name != "" {
		return name
	}
	return cmp.Or(networkFromCIDR(ctx.Networks(), address), n.Network)
}

// networkFromCluster returns the alphabetically first network that contains all endpoints of a cluster (fromRegistry).
// The result is empty if there is no such network.
func networkFromCluster(networks *meshv1.MeshNetworks, cluster string) string {
	for _, name := range sortedKeys(networks.GetNetworks()) {
		for _, e := range networks.Networks[name].GetEndpoints() {
			if e.GetFromRegistry() != "" && e.GetFromRegistry() == cluster {
				return name
			}
		}
	}
	return ""
}

// networkFromCIDR returns the alphabetically first network that contains an address (fromCidr). The result is empty if
// there is no such network.
func networkFromCIDR(networks *meshv1.MeshNetworks, address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	for _, name := range sortedKeys(networks.GetNetworks()) {
		for _, e := range networks.Networks[name].GetEndpoints() {
			if p, err := netip.ParsePrefix(e.GetFromCidr()); err == nil && p.Contains(ip) {
				return name
			}
		}
	}
	return ""
}

// networkProblems validates meshNetworks.
func (n *Normalizer) networkProblems(r *report, networks *meshv1.MeshNetworks) {
	for _, name := range sortedKeys(networks.GetNetworks()) {
		network, at := networks.Networks[name], fmt.Sprintf("data.meshNetworks.networks[%s]", name)
		cluster := false
		for i, e := range network.GetEndpoints() {
			cluster = cluster || e.GetFromRegistry() != ""
			if cidr := e.GetFromCidr(); cidr != "" {
				if _, err := netip.ParsePrefix(cidr); err != nil {
					r.errorf(fmt.Sprintf("%s.endpoints[%d].fromCidr", at, i), "%q is no CIDR block", cidr)
				}
			}
		}
		for i, g := range network.GetGateways() {
			n.gatewayProblems(r, fmt.Sprintf("%s.gateways[%d]", at, i), g, cluster)
		}
	}
}

// gatewayProblems validates a gateway of a network. The parameter cluster reports whether an entry of the network's
// endpoints has fromRegistry.
func (n *Normalizer) gatewayProblems(r *report, at string, g *meshv1.Network_IstioNetworkGateway, cluster bool) {
	r.port(at+".port", g.GetPort())
	switch {
	case g.GetAddress() == "" && g.GetRegistryServiceName() == "":
		r.requiredf(at, "want address or registryServiceName")
	case g.GetRegistryServiceName() != "" && !cluster:
		r.warnf(problem.NoEffect, at+".registryServiceName", "no entry in endpoints has fromRegistry, so the Service is not searched in "+
			"any cluster")
	case g.GetAddress() != "" && !isIP(g.GetAddress()):
		n.checkGatewayName(r, at+".address", g.GetAddress())
	}
	if g.GetLocality() != "" {
		r.warnf(problem.NoEffect, at+".locality", "is not read: a gateway has the locality of the endpoints that it leads to, as in Istio")
	}
}

// MeshGateways returns the record of the gateways that meshNetworks defines by address, sorted without duplicates. The
// record is nil if no gateway has an IP address or a resolved host name. The parameter networks may be nil.
//
// The function resolved returns the addresses of a host name by its ID (ResolvedID). MeshGateways calls it only for
// valid names, and only with Options.ResolveGateways. The result refs has the IDs of all names that were looked up, in
// any order. IDs may be repeated, and refs is nil if no name was looked up. Errors are those of model.New.
func (n *Normalizer) MeshGateways(networks *meshv1.MeshNetworks, resolved func(object.ID) []string) (record model.Record,
	refs []object.ID, err error) {
	spec := &model.NetworkGatewaysSpec{}
	for name, network := range networks.GetNetworks() {
		for _, g := range network.GetGateways() {
			addresses := []string{g.GetAddress()}
			if !isIP(g.GetAddress()) {
				if addresses = nil; g.GetAddress() != "" && n.checkGatewayName(&report{}, "", g.GetAddress()) {
					id := ResolvedID(absolute(g.GetAddress()))
					refs, addresses = append(refs, id), resolved(id)
				}
			}
			for _, address := range addresses {
				spec.Gateways = append(spec.Gateways, &model.NetworkGateway{Network: name, Address: address, Port: g.GetPort()})
			}
		}
	}
	if spec.Gateways = sortGateways(spec.Gateways); len(spec.Gateways) == 0 {
		return nil, refs, nil
	}
	record, err = model.New(model.MeshGatewaysKey, 0, spec)
	return record, refs, err
}

// networkGateways returns the record of a Service that is a gateway of networks, by its label or by meshNetworks. The
// record has the addresses at which the Service is reachable from outside of its cluster. The result is nil for a
// Service without such addresses, and for a Service that is no gateway.
func (n *Normalizer) networkGateways(r *report, obj *object.Object, svc *corev1.Service, ctx Lookup) []model.Record {
	gateways := n.gatewaysOf(r, obj, ctx)
	if len(gateways) == 0 {
		return nil
	}
	var addresses []string
	_, byNode := svc.Annotations[nodeSelectorAnnotation]
	if byNode = byNode && svc.Spec.Type == corev1.ServiceTypeNodePort; byNode {
		addresses = nodeAddresses(r, obj, svc, ctx)
	} else if addresses = n.externalAddresses(r, svc, ctx); len(addresses) == 0 {
		r.warnf(problem.NoEffect, "status.loadBalancer", "the Service has no address outside of its cluster yet: it is no gateway of its network")
	}
	spec := &model.NetworkGatewaysSpec{}
	for _, g := range gateways {
		if byNode {
			g.Port = nodePort(svc, g.Port)
		}
		for _, address := range addresses {
			spec.Gateways = append(spec.Gateways, &model.NetworkGateway{Network: g.Network, Cluster: n.clusterOf(obj.ID), Address: address,
				Port: g.Port})
		}
	}
	if spec.Gateways = sortGateways(spec.Gateways); len(spec.Gateways) == 0 {
		return nil
	}
	return r.record(model.KindNetworkGateways, obj, obj.ID.Name, spec)
}

// gatewaysOf returns the networks and ports for which a Service is a gateway, without addresses, in any order. The
// network label of the Service has priority over meshNetworks.
func (n *Normalizer) gatewaysOf(r *report, obj *object.Object, ctx Lookup) (out []*model.NetworkGateway) {
	if network := obj.Labels[model.NetworkLabel]; network != "" {
		port := uint32(gatewayPort)
		if text := obj.Labels[gatewayPortLabel]; text != "" {
			number, err := strconv.ParseUint(text, 10, 16)
			if err != nil || number == 0 {
				r.warnf(problem.Invalid, fmt.Sprintf("metadata.labels[%s]", gatewayPortLabel), "%q is no port: it is %d", text, gatewayPort)
			} else {
				port = uint32(number)
			}
		}
		return []*model.NetworkGateway{{Network: network, Port: port}}
	}
	host, cluster := n.fqdn(obj.ID.Name, obj.ID.Namespace), n.clusterOf(obj.ID)
	for name, network := range ctx.Networks().GetNetworks() {
		of := slices.ContainsFunc(network.GetEndpoints(), func(e *meshv1.Network_NetworkEndpoints) bool { return e.GetFromRegistry() == cluster })
		for _, g := range network.GetGateways() {
			if of && g.GetRegistryServiceName() == host {
				out = append(out, &model.NetworkGateway{Network: name, Port: g.GetPort()})
			}
		}
	}
	return out
}

// externalAddresses returns the IP addresses at which a Service is reachable from outside of its cluster.
func (n *Normalizer) externalAddresses(r *report, svc *corev1.Service, ctx Lookup) (out []string) {
	for i, address := range svc.Spec.ExternalIPs {
		if isIP(address) {
			out = append(out, address)
		} else {
			out = append(out, n.gatewayName(r, fmt.Sprintf("spec.externalIPs[%d]", i), address, ctx)...)
		}
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return out
	}
	for i, ingress := range svc.Status.LoadBalancer.Ingress {
		switch at := fmt.Sprintf("status.loadBalancer.ingress[%d]", i); {
		case isIP(ingress.IP):
			out = append(out, ingress.IP)
		case cmp.Or(ingress.IP, ingress.Hostname) != "":
			out = append(out, n.gatewayName(r, at, cmp.Or(ingress.IP, ingress.Hostname), ctx)...)
		}
	}
	return out
}

// nodeAddresses returns the external addresses of the Nodes that the Service's nodeSelectorAnnotation selects. The
// annotation {} selects all Nodes. The Service's external IPs are not used, because they serve the Service's ports and
// not its node ports (istio: pilot/pkg/serviceregistry/kube/controller/network.go, updateServiceNodePortAddresses).
func nodeAddresses(r *report, obj *object.Object, svc *corev1.Service, ctx Lookup) (out []string) {
	at := fmt.Sprintf("metadata.annotations[%s]", nodeSelectorAnnotation)
	selector := map[string]string{}
	if err := json.Unmarshal([]byte(svc.Annotations[nodeSelectorAnnotation]), &selector); err != nil {
		r.warnf(problem.Invalid, at, "want a JSON object of labels and their values: %v; the Service is no gateway of its network", err)
		return nil
	}
	r.ref(AllNodes(obj.ID.Origin))
	for node := range ctx.Nodes(obj.ID.Origin) {
		if node.External != "" && labels.SelectorFromSet(selector).Matches(labels.Set(node.Labels)) {
			out = append(out, node.External)
		}
	}
	if len(out) == 0 {
		r.warnf(problem.NoEffect, at, "no Node that it selects has an address of type ExternalIP: the Service is no gateway of its network")
	}
	return out
}

// nodePort returns the node port for a port of a Service, or the port itself if it has no node port.
func nodePort(svc *corev1.Service, port uint32) uint32 {
	for _, p := range svc.Spec.Ports {
		if uint32(p.Port) == port && p.NodePort != 0 {
			return uint32(p.NodePort)
		}
	}
	return port
}

// sortGateways sorts gateways, and removes duplicates.
func sortGateways(in []*model.NetworkGateway) []*model.NetworkGateway {
	compare := func(a, b *model.NetworkGateway) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Address, b.Address),
			cmp.Compare(a.Port, b.Port))
	}
	slices.SortFunc(in, compare)
	return slices.CompactFunc(in, func(a, b *model.NetworkGateway) bool { return compare(a, b) == 0 })
}
