package istiometrics

import (
	"encoding/json"
	"slices"
	"strings"
)

const unknown = "unknown" // Istio's value for labels without a known value

// label is one label of a series.
type label struct{ name, value string }

// order lists Istio's labels in the order in which they are written. Other labels follow.
var order = []string{
	Reporter,
	"source_workload", "source_canonical_service", "source_canonical_revision", "source_workload_namespace",
	SourcePrincipal, "source_app", "source_version", "source_cluster",
	"destination_workload", "destination_workload_namespace",
	DestinationPrincipal, "destination_app", "destination_version", "destination_service",
	"destination_canonical_service", "destination_canonical_revision", "destination_service_name",
	"destination_service_namespace", "destination_cluster",
	"request_protocol", ResponseCode, GRPCStatus, ResponseFlags, "connection_security_policy",
}

// istioLabels returns Istio's labels for the labels of Envoy's count. The result fewer reports whether the label
// Without names labels to leave out. Labels of the count, such as overrides of tags, have priority over computed
// labels. The internal labels of the count are left out.
func (w Workload) istioLabels(metric string, counted []label) (out []label, fewer bool) {
	given, left := map[string]string{}, map[string]bool{}
	for _, l := range counted {
		given[l.name] = l.value
	}
	for name := range strings.SplitSeq(given[Without], ",") {
		left[name], fewer = name != "", fewer || name != ""
	}
	all := computed(metric, given, w)
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

// internal is the set of labels of Envoy's counts that are not Istio's.
var internal = map[string]bool{Peer: true, Services: true, Cluster: true, Without: true}

// computed returns the labels of Istio that are computed from the labels of Envoy's count (argument given) and from the
// proxy's workload (argument own).
func computed(metric string, given map[string]string, own Workload) map[string]string {
	all := map[string]string{SourcePrincipal: "", DestinationPrincipal: "", "connection_security_policy": "", "request_protocol": "http"}
	switch {
	case strings.HasPrefix(metric, tcpPrefix):
		all["request_protocol"] = "tcp"
	case given[GRPCStatus] != "":
		all["request_protocol"] = "grpc"
	}
	if given[Reporter] == Source {
		own.labels(Source, all)
		peerOf(given[Peer]).labels(Destination, all)
	} else {
		accountOf(given[SourcePrincipal]).labels(Source, all)
		own.labels(Destination, all)
		all["connection_security_policy"] = "none"
		if given[SourcePrincipal] != "" {
			all["connection_security_policy"] = "mutual_tls"
		}
	}
	var services []struct{ Host, Name, Namespace string }
	_ = json.Unmarshal([]byte(given[Services]), &services) // the list is empty for a cluster without a service
	all["destination_service"], all["destination_service_name"], all["destination_service_namespace"] = "", given[Cluster], ""
	if len(services) > 0 {
		s := services[0]
		all["destination_service"], all["destination_service_name"], all["destination_service_namespace"] = s.Host, s.Name, s.Namespace
	}
	return all
}
