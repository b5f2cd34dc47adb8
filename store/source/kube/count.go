package kube

import (
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// registryTypes lists the built-in kinds whose changes istiod counts as registry events. It maps each kind to istiod's
// label for it in this metric.
var registryTypes = map[object.ID]string{
	{Kind: "Service"}: "Services", {Kind: "Pod"}: "Pods", {Kind: "Node"}: "Nodes", {Kind: "Namespace"}: "Namespaces",
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: "EndpointSlice",
}

// countEvent counts one emitted change of an object. The parameter event is "add", "update" or "delete". Several
// changes of an object that are emitted together count once. Built-in kinds that are not in registryTypes are not
// counted.
func countEvent(id object.ID, event string) {
	if wanted(id.Group) {
		obs.KubeConfigEvents.WithLabelValues(id.Kind, event).Inc()
	} else if kind := registryTypes[object.ID{Group: id.Group, Kind: id.Kind}]; kind != "" {
		obs.KubeRegistryEvents.WithLabelValues(kind, event).Inc()
	}
}
