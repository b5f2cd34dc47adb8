package origin

import (
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestOrigin(t *testing.T) {
	west := New("west", "files")
	if west != New("west", "files") || west == New("east", "files") || west == New("west", "kube") || New("", "") != (Origin{}) {
		t.Error("equal origins are not those of equal clusters and sources")
	}
	if west.Cluster() != "west" || west.Source() != "files" || (Origin{}).Cluster() != "" || (Origin{}).Source() != "" {
		t.Error("an origin does not say what it was made of")
	}
	if west.Suffix() != " in cluster west" || New("", "files").Suffix() != "" {
		t.Errorf("%q, %q", west.Suffix(), New("", "files").Suffix())
	}
	if unsafe.Sizeof(west) != unsafe.Sizeof(uintptr(0)) {
		t.Error("an origin is in every key, and has more than one word")
	}
	want := []Origin{{}, New("", "files"), New("", "kube"), New("east", "kube"), west}
	got := slices.SortedFunc(slices.Values([]Origin{west, want[3], want[2], want[1], {}}), Origin.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("sorted %v", got)
	}
}

func TestCheckCluster(t *testing.T) {
	for _, name := range []string{"Kubernetes", "cluster-1", "eu_west.a", "1"} {
		if err := CheckCluster(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "a b", "a\x00", "ä", strings.Repeat("a", 254)} {
		if CheckCluster(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
