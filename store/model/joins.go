package model

import (
	"maps"
	"slices"
)

// Joins reports whether two ServiceEntries that have a host in common form one service with the ports of both. They
// must be in one namespace and origin, with equal resolution, selector and exportTo (istio: pilot/pkg/model/sidecar.go,
// canMergeServices). Istio also compares the labels of the objects, which records do not keep. Joins does not compare
// hosts. If one record is of another kind, Joins returns false.
func Joins(a, b *Service) bool {
	return a.Key.Kind == KindServiceEntry && b.Key.Kind == KindServiceEntry && a.Key.Namespace == b.Key.Namespace &&
		a.Key.Origin == b.Key.Origin &&
		a.Spec.GetResolution() == b.Spec.GetResolution() && maps.Equal(a.Spec.GetSelector(), b.Spec.GetSelector()) &&
		slices.Equal(a.Spec.GetExportTo(), b.Spec.GetExportTo())
}

// Merges reports whether a DestinationRule is merged into an older rule of the same host and namespace, for proxies to
// which both are exported. The exportTo of the younger rule must equal that of the older one. If the exportTo of the
// older rule is not empty, the younger one may also contain all of its elements and more. The caller checks that host
// and namespace are equal, and that neither rule has a workloadSelector. If rules are not merged, proxies to which both
// are exported use the younger one (istio: pilot/pkg/model/destination_rule.go, mergeDestinationRule).
func Merges(older, younger *DestinationRule) bool {
	to, more := older.Spec.GetExportTo(), younger.Spec.GetExportTo()
	return slices.Equal(to, more) || len(to) > 0 && !slices.ContainsFunc(to, func(namespace string) bool {
		_, is := slices.BinarySearch(more, namespace) // the normaliser sorts exportTo
		return !is
	})
}
