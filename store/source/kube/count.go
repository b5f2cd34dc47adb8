package kube

import (
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// registryTypes are the kinds that istiod counts as events of its service registry, by its words for them.
var registryTypes = map[object.ID]string{
	{Kind: "Service"}: "Services", {Kind: "Pod"}: "Pods", {Kind: "Node"}: "Nodes", {Kind: "Namespace"}: "Namespaces",
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: "EndpointSlice",
}

// countEvent counts what became of an object: add, update or delete. Changes of an object that come before it is emitted are one.
func countEvent(id object.ID, event string) {
	if wanted(id.Group) {
		obs.KubeConfigEvents.WithLabelValues(id.Kind, event).Inc()
	} else if kind := registryTypes[object.ID{Group: id.Group, Kind: id.Kind}]; kind != "" {
		obs.KubeRegistryEvents.WithLabelValues(kind, event).Inc()
	}
}
