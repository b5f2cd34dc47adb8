package kube

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
)

// Equal labels are one map, also where objects with others are between; labels that differ are not; and however many
// there are, no more than the places are kept.
func TestLabelSets(t *testing.T) {
	var s labelSets
	of := func(version string) map[string]string { return map[string]string{"app": "web", "version": version} }
	one := func(version string) map[string]string { return s.of(of(version)) }
	same := func(a, b map[string]string) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	other := "v2"
	for i := 3; s.place(of(other)) == s.place(of("v1")); i++ { // hashes have a seed of the process
		other = fmt.Sprint("v", i)
	}
	first, second := one("v1"), one(other)
	if !same(first, one("v1")) || !same(second, one(other)) || same(first, second) {
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
