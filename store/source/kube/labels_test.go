package kube

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
)

// Equal labels are one map, also where objects with others are between; labels that differ are not; and however many there are, no more than the places are kept.
func TestLabelSets(t *testing.T) {
	var s labelSets
	one := func(version string) map[string]string {
		return s.of(map[string]string{"app": "web", "version": version})
	}
	same := func(a, b map[string]string) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	first, second := one("v1"), one("v2")
	if !same(first, one("v1")) || !same(second, one("v2")) || same(first, second) {
		t.Error("equal labels are two maps")
	}
	if s.of(nil) != nil || s.of(map[string]string{}) != nil {
		t.Error("no labels are a map")
	}
	for i := range 10 * len(s) {
		labels := map[string]string{"pod": fmt.Sprint(i), fmt.Sprint("k", i): "x"}
		if got := s.of(labels); !maps.Equal(got, labels) || same(got, labels) {
			t.Fatalf("%v became %v", labels, got)
		}
	}
}
