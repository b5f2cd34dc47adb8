package model

import (
	"maps"
	"slices"
)

// Joins says whether two ServiceEntries of one host are one service, which has the ports of both: they are of one namespace, and differ in
// neither resolution, selector nor exportTo (istio: pilot/pkg/model/sidecar.go, canMergeServices). Istio compares the labels of the
// objects too, which no record has.
func Joins(a, b *Service) bool {
	return a.Key.Kind == KindServiceEntry && b.Key.Kind == KindServiceEntry && a.Key.Namespace == b.Key.Namespace && a.Key.Origin == b.Key.Origin &&
		a.Spec.GetResolution() == b.Spec.GetResolution() && maps.Equal(a.Spec.GetSelector(), b.Spec.GetSelector()) &&
		slices.Equal(a.Spec.GetExportTo(), b.Spec.GetExportTo())
}
