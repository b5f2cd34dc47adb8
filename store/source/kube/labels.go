package kube

import (
	"hash/maphash"
	"maps"

	"navarch.io/navarch/store/intern"
)

// labelSets is labels that objects of one kind had lately, so that objects with equal labels have one map: lists come in the order of names, in which Pods of a
// workload, and of its versions, follow each other. It has so many places and no more, so whoever invents labels fills nothing; a set that has lost
// its place lives as long as its objects. The zero value is ready for use.
type labelSets [64]map[string]string

var labelSeed = maphash.MakeSeed()

// of is these labels; where they are not known yet, in a map of its own whose texts are held once in this process.
func (s *labelSets) of(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	at := &s[s.place(labels)]
	if !maps.Equal(*at, labels) {
		own := make(map[string]string, len(labels))
		for key, value := range labels {
			own[intern.Text(key)] = intern.Text(value)
		}
		*at = own
	}
	return *at
}

// place is the index of labels: those of another set may be at the same one.
func (s *labelSets) place(labels map[string]string) uint64 {
	hash := uint64(0)
	for key, value := range labels { // in any order
		hash ^= maphash.Comparable(labelSeed, [2]string{key, value})
	}
	return hash % uint64(len(s))
}
