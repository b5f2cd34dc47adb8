package model

import "strings"

// Labels of the place of proxies and endpoints.
const (
	NetworkLabel = "topology.istio.io/network"
	ClusterLabel = "topology.istio.io/cluster"
	RegionLabel  = "topology.kubernetes.io/region"
	ZoneLabel    = "topology.kubernetes.io/zone"
	SubzoneLabel = "topology.istio.io/subzone"
	NodeLabel    = "kubernetes.io/hostname"
)

// localityKeys are the labels that state a whole locality, the first one that is there: region.zone.subzone, since a label's value has no slashes
// (istio: pkg/model/proxy.go, GetLocalityLabel).
var localityKeys = [...]string{"topology.istio.io/locality", "istio-locality"}

// StatedLocality is the locality that labels of a proxy or a workload state as a whole, "region/zone/sub-zone"; empty: none.
func StatedLocality(labels map[string]string) string {
	for _, key := range localityKeys {
		if value, stated := labels[key]; stated && strings.Contains(value, "/") {
			return value
		} else if stated {
			return strings.ReplaceAll(value, ".", "/")
		}
	}
	return ""
}

// localityLabels are the labels of the parts of a locality, in their order.
var localityLabels = [...]string{RegionLabel, ZoneLabel, SubzoneLabel}

// LocalityParts are region, zone and sub-zone of a locality, "region/zone/sub-zone".
func LocalityParts(locality string) (parts [3]string) {
	copy(parts[:], strings.SplitN(locality, "/", 3))
	return parts
}

// LocalityLabel is the part of a locality that a well-known label names; false: the label names none.
func LocalityLabel(locality, key string) (part string, ok bool) {
	for i, known := range localityLabels {
		if key == known {
			return LocalityParts(locality)[i], true
		}
	}
	return "", false
}

// PlaceLabel says whether a label is of the place of endpoints, and so may be theirs though they do not state it.
func PlaceLabel(key string) bool {
	_, locality := LocalityLabel("", key)
	return locality || key == NetworkLabel || key == ClusterLabel || key == NodeLabel
}

// LabelOf is a label of an endpoint as the subsets of DestinationRules and failoverPriority look at it: those of its place (network, cluster, node, locality)
// follow from what is known of that, and from its own labels only where nothing is (istio: AugmentLabels of pilot/pkg/serviceregistry/util/label). False: it has
// no such label.
func LabelOf(e *Endpoint, key string) (value string, ok bool) {
	known := ""
	switch key {
	case NetworkLabel:
		known = e.GetNetwork()
	case ClusterLabel:
		known = e.GetCluster()
	case NodeLabel:
		known = e.GetNode()
	default:
		known, _ = LocalityLabel(e.GetLocality(), key)
	}
	if known != "" {
		return known, true
	}
	value, ok = e.GetLabels()[key]
	return value, ok
}

// Selects says whether the labels of a subset pick an endpoint: it has each of them (LabelOf). No labels pick all.
func Selects(subset map[string]string, e *Endpoint) bool {
	for k, v := range subset {
		if have, ok := LabelOf(e, k); !ok || have != v {
			return false
		}
	}
	return true
}
