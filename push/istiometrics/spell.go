package istiometrics

import (
	"encoding/json"
	"slices"
	"strings"
)

const unknown = "unknown" // as Istio says it

// label is one of a line.
type label struct{ name, value string }

// order is the one in which Istio's labels stand; others follow them.
var order = []string{
	Reporter, "source_workload", "source_canonical_service", "source_canonical_revision", "source_workload_namespace", SourcePrincipal, "source_app",
	"source_version", "source_cluster", "destination_workload", "destination_workload_namespace", DestinationPrincipal, "destination_app",
	"destination_version", "destination_service", "destination_canonical_service", "destination_canonical_revision", "destination_service_name",
	"destination_service_namespace", "destination_cluster", "request_protocol", ResponseCode, GRPCStatus, ResponseFlags, "connection_security_policy",
}

// spell are Istio's labels for those by which Envoy has counted, and whether some were left out. Labels of Envoy's that are not named here stay as
// they are, and go before what is computed: overrides of tags are such.
func (w Workload) spell(metric string, counted []label) (out []label, fewer bool) {
	said, left := map[string]string{}, map[string]bool{}
	for _, l := range counted {
		said[l.name] = l.value
	}
	for name := range strings.SplitSeq(said[Without], ",") {
		left[name], fewer = name != "", fewer || name != ""
	}
	all := computed(metric, said, w)
	for _, l := range counted {
		switch l.name {
		case Peer, Services, Cluster, Without:
		case SourcePrincipal, DestinationPrincipal:
			if l.value != "" {
				all[l.name] = l.value
			}
		default:
			all[l.name] = l.value
		}
	}
	add := func(name string) {
		value, there := all[name]
		if !there || left[name] {
			return
		}
		if value == "" && name != GRPCStatus {
			value = unknown
		}
		out = append(out, label{name, value})
	}
	for _, name := range order {
		add(name)
	}
	for _, l := range counted {
		if !internal[l.name] && !slices.Contains(order, l.name) {
			add(l.name)
		}
	}
	return out, fewer
}

var internal = map[string]bool{Peer: true, Services: true, Cluster: true, Without: true}

// computed are the labels of Istio that are computed of what Envoy has counted by, and of whose the proxy is.
func computed(metric string, said map[string]string, own Workload) map[string]string {
	all := map[string]string{SourcePrincipal: "", DestinationPrincipal: "", "connection_security_policy": "", "request_protocol": "http"}
	switch {
	case strings.HasPrefix(metric, tcpPrefix):
		all["request_protocol"] = "tcp"
	case said[GRPCStatus] != "":
		all["request_protocol"] = "grpc"
	}
	if said[Reporter] == Source {
		own.labels(Source, all)
		peerOf(said[Peer]).labels(Destination, all)
	} else {
		accountOf(said[SourcePrincipal]).labels(Source, all)
		own.labels(Destination, all)
		all["connection_security_policy"] = "none"
		if said[SourcePrincipal] != "" {
			all["connection_security_policy"] = "mutual_tls"
		}
	}
	var services []struct{ Host, Name, Namespace string }
	_ = json.Unmarshal([]byte(said[Services]), &services) // a cluster without a service has none
	all["destination_service"], all["destination_service_name"], all["destination_service_namespace"] = "", said[Cluster], ""
	if len(services) > 0 {
		s := services[0]
		all["destination_service"], all["destination_service_name"], all["destination_service_namespace"] = s.Host, s.Name, s.Namespace
	}
	return all
}
