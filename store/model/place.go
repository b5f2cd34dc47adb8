package model

import "strings"

// Labels that state the place of proxies and endpoints: network, cluster, locality and node.
const (
	NetworkLabel = "topology.istio.io/network"
	ClusterLabel = "topology.istio.io/cluster"
	RegionLabel  = "topology.kubernetes.io/region"
	ZoneLabel    = "topology.kubernetes.io/zone"
	SubzoneLabel = "topology.istio.io/subzone"
	NodeLabel    = "kubernetes.io/hostname"
)

// localityKeys are the labels of a whole locality. Kubernetes allows no slash in label values, so dots separate the
// parts in labels. A value with slashes is used unchanged. The first label that is present counts (istio:
// pkg/model/proxy.go, GetLocalityLabel).
var localityKeys = [...]string{"topology.istio.io/locality", "istio-locality"}

// StatedLocality returns the locality "region/zone/sub-zone" that a label of a proxy or workload states. The label is
// topology.istio.io/locality, or istio-locality if the first label is missing. If the label's value has no slash, its
// dots become slashes. Without these labels the result is empty. Labels of single parts (RegionLabel and so on) are not
// read.
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

// localityLabels are the labels of the parts of a locality, in order.
var localityLabels = [...]string{RegionLabel, ZoneLabel, SubzoneLabel}

// LocalityParts splits a locality "region/zone/sub-zone" into region, zone and sub-zone. Missing parts are empty.
// Further slashes belong to the sub-zone.
func LocalityParts(locality string) (parts [3]string) {
	copy(parts[:], strings.SplitN(locality, "/", 3))
	return parts
}

// LocalityLabel returns the part of a locality that the label key names: RegionLabel, ZoneLabel or SubzoneLabel. The
// part may be empty. The result ok is false for other labels.
func LocalityLabel(locality, key string) (part string, ok bool) {
	for i, known := range localityLabels {
		if key == known {
			return LocalityParts(locality)[i], true
		}
	}
	return "", false
}

// PlaceLabel reports whether a label states a part of an endpoint's place. LabelOf derives such a label from the
// endpoint's fields, so the endpoint's labels need not contain it.
func PlaceLabel(key string) bool {
	_, locality := LocalityLabel("", key)
	return locality || key == NetworkLabel || key == ClusterLabel || key == NodeLabel
}

// LabelOf returns the value of an endpoint's label, as subsets of DestinationRules and failoverPriority compare it. For
// a label of the endpoint's place (PlaceLabel) it returns the endpoint's field. If the field is empty, or for other
// labels, it returns the endpoint's own label (istio: AugmentLabels of pilot/pkg/serviceregistry/util/label). The
// result ok is false if the endpoint has no such label.
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

// Selects reports whether an endpoint has each label of a subset (LabelOf). A subset without labels selects every
// endpoint.
func Selects(subset map[string]string, e *Endpoint) bool {
	for k, v := range subset {
		if have, ok := LabelOf(e, k); !ok || have != v {
			return false
		}
	}
	return true
}
