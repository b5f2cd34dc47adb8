package kv_test

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// LoadHashes returns the hashes and sizes of Load's values, and the raw values only of selected paths.
func TestLoadHashes(t *testing.T) {
	s := kvtest.Start(t)
	commit(t, s.Store, kv.Batch{Epoch: epoch(t, s.Store, "a"), Puts: services(t, 300, 80)})
	all := load(t, s.Store, 0)
	slim, err := s.LoadHashes(within(t), 0, func(path string) bool { return strings.HasSuffix(path, "/s0007") })
	if err != nil || slim.Complete != all.Complete || len(slim.Values) != len(all.Values) || len(slim.Contents.Differ(slim.Said)) > 0 {
		t.Fatalf("%+v, %v", slim, err)
	}
	for i, v := range slim.Values {
		want := all.Values[i]
		if v.Path != want.Path || v.Hash() != want.Hash() || v.Size() != len(want.Raw) || v.Revision != want.Revision {
			t.Errorf("%+v, want %+v", v, want)
		}
		if whole := strings.HasSuffix(v.Path, "/s0007"); whole != (v.Raw != nil) {
			t.Errorf("%s is whole: %v", v.Path, !whole)
		}
	}
}
