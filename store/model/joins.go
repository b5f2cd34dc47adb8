package model

import (
	"maps"
	"slices"
)

// Joins says whether two ServiceEntries of one host are one service, which has the ports of both: they are of one namespace, and differ in
// neither resolution, selector nor exportTo (istio: pilot/pkg/model/sidecar.go, canMergeServices). Istio compares the labels of the
// objects too, which no record has.
func Joins(a, b *Service) bool {
	return a.Key.Kind == KindServiceEntry && b.Key.Kind == KindServiceEntry && a.Key.Namespace == b.Key.Namespace &&
		a.Key.Origin == b.Key.Origin &&
		a.Spec.GetResolution() == b.Spec.GetResolution() && maps.Equal(a.Spec.GetSelector(), b.Spec.GetSelector()) &&
		slices.Equal(a.Spec.GetExportTo(), b.Spec.GetExportTo())
}

// Merges says whether a DestinationRule is merged with an older one of its host and namespace, for those who see both and where neither has a workloadSelector: its
// exportTo is that of the older one, or has more. Otherwise they stand apart, and those who see both have the younger one
// (istio: pilot/pkg/model/destination_rule.go, mergeDestinationRule).
func Merges(older, younger *DestinationRule) bool {
	to, more := older.Spec.GetExportTo(), younger.Spec.GetExportTo()
	return slices.Equal(to, more) || len(to) > 0 && !slices.ContainsFunc(to,
		func(namespace string) bool { return !slices.Contains(more, namespace) })
}
