package model

import (
	"slices"
	"strings"
)

// Labels that say where a workload or an endpoint is: Kubernetes gives some of them to Nodes, Istio reads all of them
// (https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/,
// https://istio.io/latest/docs/reference/config/networking/destination-rule/#LocalityLoadBalancerSetting, failoverPriority).
const (
	LabelRegion   = "topology.kubernetes.io/region"
	LabelZone     = "topology.kubernetes.io/zone"
	LabelSubzone  = "topology.istio.io/subzone"
	LabelNetwork  = "topology.istio.io/network"
	LabelCluster  = "topology.istio.io/cluster"
	LabelHostname = "kubernetes.io/hostname" // the name of the node
)

// localityLabels name the parts of a locality in their order.
var localityLabels = [...]string{LabelRegion, LabelZone, LabelSubzone}

// Locality is region/zone/sub-zone without empty parts at its end.
func Locality(region, zone, subzone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}

// SplitLocality is the region, the zone and the sub-zone of a locality; those that it does not name are empty.
func SplitLocality(locality string) (parts [len(localityLabels)]string) {
	copy(parts[:], strings.SplitN(locality, "/", len(parts)))
	return parts
}

// LocalityLabel is the part of a locality that a label names; false: the label names none.
func LocalityLabel(locality, key string) (part string, ok bool) {
	i := slices.Index(localityLabels[:], key)
	if i < 0 {
		return "", false
	}
	return SplitLocality(locality)[i], true
}
