package ingest

import (
	"fmt"

	"navarch.io/navarch/store/model"
)

// guardFrom is how many records of a kind there must be for the guard to look at the kind alone.
const guardFrom = 4

// guard withholds deletes where a new leader would delete everything, or more than half of a kind: a folder that is not
// mounted is far more likely than somebody who meant it.
func (s *State) guard(gone []model.Key) {
	if s.allowEmpty || len(gone) == 0 {
		return
	}
	stored, lost, wanted := map[model.Kind]int{}, map[model.Kind]int{}, map[model.Kind]int{}
	for key := range s.have {
		stored[key.Kind]++
	}
	for _, key := range gone {
		lost[key.Kind]++
	}
	for key := range s.want {
		wanted[key.Kind]++
	}
	for key := range s.drafts {
		wanted[key.Kind]++
	}
	for _, key := range gone {
		k := key.Kind
		if len(gone) == len(s.have) && len(s.want)+len(s.drafts) == 0 || stored[k] >= guardFrom && 2*lost[k] > stored[k] && 2*wanted[k] < stored[k] {
			s.withheld[key], s.held[key] = true, true
		}
	}
	if len(s.held) > 0 {
		s.guarded = fmt.Sprintf("%d of %d stored records have no object any more: they are kept; if that is meant, accept the removal (navarchctl store held; --allow-empty)", len(gone), len(s.have))
	}
}
