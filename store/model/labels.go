package model

import (
	"hash/maphash"
	"maps"
	"sync"

	"google.golang.org/protobuf/proto"
)

// Labels are half of the memory of a decoded endpoint (some 450 bytes of 900). Most sets of labels occur several times,
// in each endpoint of a Deployment and in the Workload of each of its Pods. So Decode gives equal labels one map.

// labelsKept bounds the number of maps in each generation of the shared labels.
const labelsKept = 8192

// sharedLabels contains the maps of labels that were decoded recently, in two generations. When the younger generation
// is full, it replaces the elder one.
type sharedLabels struct {
	seed maphash.Seed

	mu           sync.Mutex // no other lock is acquired while it is held
	young, elder map[uint64]map[string]string
}

var decodedLabels = &sharedLabels{seed: maphash.MakeSeed()}

// share replaces labels of endpoints with shared maps. It is called for each message that was just decoded. The caller
// must be the only owner of body.
func (s *sharedLabels) share(body proto.Message) {
	switch b := body.(type) {
	case *EndpointsSpec:
		var last map[string]string // most endpoints of a slice have equal labels
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

// same returns the shared map that equals labels, or labels itself. If two different sets have one hash, only the first
// is shared.
func (s *sharedLabels) same(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return labels
	}
	id := uint64(len(labels))
	for k, v := range labels { // the sum does not depend on the order
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

// Matches reports whether labels have each entry of a selector. An empty or nil selector matches all labels.
func Matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Contradict reports whether two selectors have different values for some label, so that no labels match both.
func Contradict(a, b map[string]string) bool {
	for k, v := range a {
		if other, has := b[k]; has && other != v {
			return true
		}
	}
	return false
}
