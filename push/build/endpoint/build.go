package endpoint

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Build encodes the assignment that Assignment returns, as a resource with the name s.Cluster. Members whose address
// IsAddress does not accept are left out. An assignment without endpoints is valid, and requests to its cluster get
// status 503. Build fails only if a text is not valid UTF-8. The error names the resource.
func (s Spec) Build() (*xds.Resource, error) {
	return s.BuildInPieces(func() {})
}

// BuildInPieces is like Build, but calls pause from time to time, because one host may have 100,000 endpoints. It calls
// pause after every 2,000 steps or so, and once before it encodes the assignment. Each endpoint takes several steps.
// pause may block, and must not be nil. The error is that of Build.
func (s Spec) BuildInPieces(pause func()) (*xds.Resource, error) {
	return built(s, pause)
}

// message returns the assignment that is sent.
func (s Spec) message(pace *pacer) *endpointv3.ClusterLoadAssignment {
	return assignment(s, IsAddress, new(encoder).lbEndpoint, pace)
}

// maxPath is the longest path of a Unix socket on Linux, in bytes (unix(7)).
const maxPath = 107

// IsAddress reports whether Envoy accepts an address in EDS: an IP without a zone, or "unix://" and a path of 1 to 107
// bytes. For one invalid address, Envoy refuses the whole assignment ("malformed IP address").
func IsAddress(address string) bool {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return path != "" && len(path) <= maxPath
	}
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Zone() == ""
}

// Assignment returns the assignment of a Spec, with endpoints grouped by locality and priority. It contains the members
// whose address the function keep accepts. Members of other networks (Horizon.Beyond) are replaced by gateways of their
// network, or left out as Horizon states. Localities to which Balance sends no traffic are left out too.
//
// Each gateway occurs once. Of members with an equal pair of address and port, the member whose locality sorts first is
// used. Members whose port is 0 or above 65535 are left out. A Unix socket may have port 0.
//
// The weight of a member is its stated weight, or 1 if no weight is stated. If gateways replace members, all weights
// are multiplied by one factor. If the sum of the weights could exceed Envoy's limit (4294967295), all weights are
// divided by one power of two, to at least 1. The caller owns the result.
func Assignment(s Spec, keep func(address string) bool) *endpointv3.ClusterLoadAssignment {
	return assignment(s, keep, lbEndpoint, &pacer{pause: func() {}})
}

// assignment returns the result of Assignment. The function encode makes the message of each endpoint. assignment
// pauses between pieces of the work.
func assignment(
	s Spec, keep func(string) bool, encode func(m model.Member, weight uint32, mtls bool) *endpointv3.LbEndpoint, pace *pacer,
) *endpointv3.ClusterLoadAssignment {
	plain := make(map[model.Member]bool, s.Plain.Len())
	for _, m := range s.Plain.All() {
		plain[m] = true
		pace.step()
	}
	targets := s.Horizon.targets(s.Members.All(), func(m model.Member) bool { return s.AllPlain || plain[m] }, pace)
	targets = sorted(pace, targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.Endpoint.Locality, b.Endpoint.Locality),
			cmp.Compare(a.Endpoint.Address, b.Endpoint.Address), cmp.Compare(a.Port, b.Port))
	})
	type socketKey struct {
		address string
		port    uint32
	}
	seen := make(map[socketKey]bool, len(targets))
	var total uint64
	targets = slices.DeleteFunc(targets, func(m target) bool {
		pace.step()
		at := socketKey{m.Endpoint.Address, m.Port}
		if isUnix(at.address) {
			at.port = 0
		}
		if seen[at] || !keep(at.address) || m.Port > math.MaxUint16 || m.Port == 0 && !isUnix(at.address) {
			return true
		}
		seen[at] = !m.gateway // a gateway may be in several localities; dedupeGateways keeps one
		total += m.weight
		return false
	})
	shift := 0
	for total>>shift+uint64(len(targets)) > math.MaxUint32 {
		shift++
	}

	cla := &endpointv3.ClusterLoadAssignment{ClusterName: s.Cluster}
	for _, g := range dedupeGateways(s.Balance.group(targets, pace), pace) {
		if g.excluded {
			continue
		}
		out := &endpointv3.LocalityLbEndpoints{
			Locality: locality(g.locality), Priority: g.priority, LoadBalancingWeight: wrapperspb.UInt32(0),
			LbEndpoints: make([]*endpointv3.LbEndpoint, 0, len(g.members)),
		}
		for _, m := range g.members {
			w := max(1, uint32(m.weight>>shift))
			out.LoadBalancingWeight.Value += w
			out.LbEndpoints = append(out.LbEndpoints, encode(m.Member, w, m.mtls))
			pace.step()
		}
		if g.weight > 0 {
			out.LoadBalancingWeight.Value = g.weight
		}
		cla.Endpoints = append(cla.Endpoints, out)
	}
	return cla
}

// weight returns the weight of an endpoint, at least 1.
func weight(e *model.Endpoint) uint32 { return max(1, e.Weight) }

// locality parses "region/zone/sub-zone", in which trailing parts may be missing. For "" it returns nil.
func locality(s string) *corev3.Locality {
	if s == "" {
		return nil
	}
	parts := append(strings.SplitN(s, "/", 3), "", "")
	return &corev3.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
}

// lbEndpoint returns the message of an endpoint. mtls states that the endpoint accepts the mesh's mTLS.
func lbEndpoint(m model.Member, weight uint32, mtls bool) *endpointv3.LbEndpoint {
	e := m.Endpoint
	return &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: Address(e.Address, m.Port)}},
		HealthStatus:        healths[e.Health],
		LoadBalancingWeight: wrapperspb.UInt32(weight),
		Metadata:            metadata(e, mtls),
	}
}

// healths maps the health of a member to Envoy's. Members that are not ready occur in two cases: their service
// publishes unready addresses, or Envoy needs them for the share of healthy endpoints in a priority.
var healths = map[model.Health]corev3.HealthStatus{
	model.Health_HEALTH_READY: corev3.HealthStatus_HEALTHY, model.Health_HEALTH_NOT_READY: corev3.HealthStatus_UNHEALTHY,
	model.Health_HEALTH_DRAINING: corev3.HealthStatus_DRAINING, model.Health_HEALTH_ENDED: corev3.HealthStatus_UNHEALTHY,
}

// isUnix reports whether an address is a Unix socket.
func isUnix(address string) bool { return strings.HasPrefix(address, "unix://") }

// Address returns the message of an endpoint's address. address is an IP or DNS name, or "unix://" and a path. For a
// Unix socket the port is ignored. Address does not validate its arguments. The caller owns the result.
func Address(address string, port uint32) *corev3.Address {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// metadata returns the metadata of an endpoint, which Istio's telemetry and the cluster's transport socket matches
// read. mtls adds tlsMode, which has no effect in clusters without transport socket matches.
func metadata(e *model.Endpoint, mtls bool) *corev3.Metadata {
	workload := strings.Join([]string{e.Workload, e.Namespace, canonicalName(e), canonicalRevision(e), e.Cluster}, ";")
	m := &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"istio": {Fields: map[string]*structpb.Value{"workload": structpb.NewStringValue(workload)}},
	}}
	if mtls {
		m.FilterMetadata["envoy.transport_socket_match"] = &structpb.Struct{
			Fields: map[string]*structpb.Value{"tlsMode": structpb.NewStringValue("istio")},
		}
	}
	return m
}

// canonicalName returns the canonical service of an endpoint
// (https://istio.io/latest/docs/reference/config/metrics/). If the endpoint lacks the label, the fallbacks are those
// of Istio's injector.
func canonicalName(e *model.Endpoint) string {
	return cmp.Or(e.Labels["service.istio.io/canonical-name"], e.Labels["app.kubernetes.io/name"], e.Labels["app"], e.Workload)
}

// canonicalRevision returns the canonical revision of an endpoint. The fallbacks are those of Istio's injector. The
// last fallback is "latest".
func canonicalRevision(e *model.Endpoint) string {
	return cmp.Or(e.Labels["service.istio.io/canonical-revision"], e.Labels["app.kubernetes.io/version"],
		e.Labels["version"], "latest")
}
