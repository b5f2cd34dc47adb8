package ingest

import (
	"fmt"

	"navarch.io/navarch/store/model"
)

// guardFrom is how many records of a kind there must be for the guard to look at the kind alone.
const guardFrom = 4

// guard withholds deletes where a new leader would delete everything of a cluster, or more than half of a kind there: a folder that is not
// mounted is far more likely than somebody who meant it.
func (s *State) guard(gone []model.Key) {
	if s.allowEmpty || len(gone) == 0 {
		return
	}
	// Each cluster is looked at for itself; the zero kind counts all of a cluster.
	type population struct {
		kind    model.Kind
		cluster string
	}
	stored, lost, wanted := map[population]int{}, map[population]int{}, map[population]int{}
	count := func(in map[population]int, key model.Key) {
		cluster := key.Origin.Cluster()
		in[population{key.Kind, cluster}]++
		in[population{cluster: cluster}]++
	}
	for key := range s.have {
		count(stored, key)
	}
	for _, key := range gone {
		count(lost, key)
	}
	for key := range s.want {
		count(wanted, key)
	}
	for key := range s.awaitingSeal {
		count(wanted, key)
	}
	for _, key := range gone {
		k, whole := population{key.Kind, key.Origin.Cluster()}, population{cluster: key.Origin.Cluster()}
		if lost[whole] == stored[whole] && wanted[whole] == 0 || stored[k] >= guardFrom && 2*lost[k] > stored[k] && 2*wanted[k] < stored[k] {
			s.withheld[key], s.held[key] = true, true
		}
	}
	if len(s.held) > 0 {
		s.guarded = fmt.Sprintf("%d of %d stored records have no object any more: they are kept; if that is meant, accept the removal (navarchctl store held; --allow-empty)", len(gone), len(s.have))
	}
}
