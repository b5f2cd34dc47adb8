package changes

import (
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// The page of commits lists the newest commits, oldest first, up to a limit.
func TestWrittenIsBounded(t *testing.T) {
	var w Written
	hook := w.Add
	began := time.Now()
	for i := range int64(maxCommits + 10) {
		hook(i, began, kv.Batch{Deletes: []model.Key{{Name: "x"}}})
	}
	all := w.List()
	if len(all) != maxCommits || all[0].Revision != 10 || all[maxCommits-1].Revision != maxCommits+9 {
		t.Errorf("%d commits from %+v", len(all), all[0])
	}
	if at := all[0].Committed; at.Before(began) || at.After(time.Now()) || !all[0].Event.Equal(began) || all[0].Puts != 0 || all[0].Deletes != 1 ||
		!slices.Equal(all[0].Records, []model.Key{{Name: "x"}}) {
		t.Errorf("%+v", all[0])
	}
}
