package model

import (
	"hash/maphash"
	"maps"
	"sync"

	"google.golang.org/protobuf/proto"
)

// Labels are most of what a decoded endpoint takes in memory (some 450 bytes of 900), and nearly all of them are there more than once: in
// each endpoint of a Deployment, and in the Workload of each of its Pods. So Decode gives equal labels the same map.

// labelsKept bounds how many maps each generation of the shared labels remembers.
const labelsKept = 8192

// sharedLabels finds maps of labels that were decoded lately. It holds those of two generations; where the younger is full, the elder is
// forgotten.
type sharedLabels struct {
	seed maphash.Seed

	mu           sync.Mutex // a leaf
	young, elder map[uint64]map[string]string
}

var decodedLabels = &sharedLabels{seed: maphash.MakeSeed()}

// share gives endpoints that were just decoded, and that nobody else has yet, the labels of others that have the same.
func (s *sharedLabels) share(body proto.Message) {
	switch b := body.(type) {
	case *EndpointsSpec:
		var last map[string]string // mostly they are all the same
		for _, e := range b.Endpoints {
			if len(e.Labels) > 0 && !maps.Equal(e.Labels, last) {
				last = s.same(e.Labels)
			}
			if len(e.Labels) > 0 {
				e.Labels = last
			}
		}
	case *WorkloadSpec:
		if b.Endpoint != nil {
			b.Endpoint.Labels = s.same(b.Endpoint.Labels)
		}
	}
}

// same is the map to use in the place of one that is equal. Of two sets of labels with the same hash one is shared, and the other is not.
func (s *sharedLabels) same(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return labels
	}
	id := uint64(len(labels))
	for k, v := range labels { // in any order
		id += maphash.String(s.seed, k)*3 ^ maphash.String(s.seed, v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.young[id]
	if !ok {
		if found, ok = s.elder[id]; !ok {
			found = labels
		}
		if s.young == nil || len(s.young) >= labelsKept {
			s.young, s.elder = map[uint64]map[string]string{}, s.young
		}
		s.young[id] = found
	}
	if maps.Equal(found, labels) {
		return found
	}
	return labels
}

// Matches says whether a selector picks labels: each of its entries is there. An empty selector picks all.
func Matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
