package mirror

import (
	"slices"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// A snapshot with edits equals the result of Apply for the same edits: by key, by kind, by host, and counted; for
// records of every origin. The records of the edits are the same pointers.
func TestWithIsApply(t *testing.T) {
	record := func(cluster, name, host string) model.Record {
		key := model.Key{Kind: model.KindService, Namespace: "shop", Name: name, Origin: origin.New(cluster, "files")}
		r, err := model.New(key, 1, &model.ServiceSpec{Hosts: []string{host}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	base := Empty().Apply(1, []model.Record{record("", "a", "a.old"), record("west", "a", "a.west"), record("", "b", "b.old")}, nil).New
	later := base.Apply(2, []model.Record{record("", "d", "d")}, nil).New
	added, changed := record("", "c", "c"), record("west", "a", "a.new")
	deleted := record("", "b", "b.old").Meta().Key
	want := base.Apply(2, []model.Record{added, changed}, []model.Key{deleted})
	got := base.With(want.Edits, later)
	if got.Revision() != later.Revision() || got.Len(model.KindService) != want.New.Len(model.KindService) {
		t.Errorf("revision %d, %d services; want %d, %d", got.Revision(), got.Len(model.KindService), later.Revision(), want.New.Len(model.KindService))
	}
	if is, should := slices.Collect(got.All(model.KindService)), slices.Collect(want.New.All(model.KindService)); !slices.Equal(is, should) {
		t.Errorf("records %v, want %v", is, should)
	}
	for _, host := range []string{"a.old", "a.west", "a.new", "b.old", "c", "d"} {
		is, should := slices.Collect(got.ByHost(model.KindService, host)), slices.Collect(want.New.ByHost(model.KindService, host))
		if !slices.Equal(is, should) {
			t.Errorf("records of host %s: %v, want %v", host, is, should)
		}
	}
	if r, _ := got.Get(changed.Meta().Key); r != changed {
		t.Errorf("%v is %v", changed.Meta().Key, r)
	}
	if _, there := base.Get(added.Meta().Key); there {
		t.Error("the snapshot that edits were put on has changed")
	}
}
