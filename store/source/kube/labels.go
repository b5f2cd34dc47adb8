package kube

import (
	"hash/maphash"
	"maps"

	"navarch.io/navarch/store/intern"
)

// labelSets shares maps of equal labels among objects of one kind. It is a direct-mapped cache of 64 maps. Lists are
// sorted by name, so Pods of one workload, which have equal labels, are adjacent. The fixed size bounds the memory if
// there are many different labels. An evicted map lives as long as its objects. The zero value is ready for use.
type labelSets [64]map[string]string

var labelSeed = maphash.MakeSeed()

// of returns the map in the cache that equals labels. If there is no such map, it caches and returns a copy of labels
// with interned strings. If there are no labels, it returns nil.
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

// place returns the index of labels in the cache. Different labels may have the same index.
func (s *labelSets) place(labels map[string]string) uint64 {
	hash := uint64(0)
	for key, value := range labels { // the order does not matter for the XOR
		hash ^= maphash.Comparable(labelSeed, [2]string{key, value})
	}
	return hash % uint64(len(s))
}
