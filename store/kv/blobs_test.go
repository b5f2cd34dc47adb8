package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

func TestBlobs(t *testing.T) {
	s := kvtest.Start(t)
	ctx := within(t)
	changed, err := s.BlobsChanged(ctx, "keys/")
	if err != nil {
		t.Fatal(err)
	}
	<-changed // the watch is open
	first, err := s.ChangeBlobs(ctx, kv.BlobChange{If: map[string]int64{"keys/a": 0}, Put: []kv.Blob{{Path: "keys/a", Raw: []byte("1")}}})
	if err != nil {
		t.Fatal(err)
	}
	<-changed
	// Of two that were made against the same state one is done, whole, and the other not at all.
	if _, err := s.ChangeBlobs(ctx, kv.BlobChange{If: map[string]int64{"keys/a": 0}, Put: []kv.Blob{{Path: "keys/a", Raw: []byte("2")}, {Path: "keys/b"}}}); !errors.Is(err, kv.ErrConflict) {
		t.Fatalf("a second creation: %v", err)
	}
	second, err := s.ChangeBlobs(ctx, kv.BlobChange{If: map[string]int64{"keys/a": first}, Put: []kv.Blob{{Path: "keys/c", Raw: []byte("3")}}, Delete: []string{"keys/a"}})
	if err != nil {
		t.Fatal(err)
	}
	all, at, err := s.Blobs(ctx, "keys/", 0)
	if err != nil || at < second || len(all) != 1 || all[0].Path != "keys/c" || !bytes.Equal(all[0].Raw, []byte("3")) || all[0].Revision != second {
		t.Fatalf("%+v at %d, %v", all, at, err)
	}
	if newer, _, err := s.Blobs(ctx, "keys/", second); err != nil || len(newer) != 0 {
		t.Fatalf("since %d: %+v, %v", second, newer, err)
	}
	for i := range 600 { // several pages
		if _, err := s.ChangeBlobs(ctx, kv.BlobChange{Put: []kv.Blob{{Path: fmt.Sprintf("certificates/%03d", i)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.DropBlobs(ctx, "certificates/", "certificates/100"); err != nil || n != 100 {
		t.Fatalf("dropped %d, %v", n, err)
	}
	if all, _, err = s.Blobs(ctx, "certificates/", 0); err != nil || len(all) != 500 || all[0].Path != "certificates/100" {
		t.Fatalf("%d left, %v", len(all), err)
	}
	for _, path := range []string{"records/x", "head", "leader/x", ""} {
		if _, err := s.ChangeBlobs(ctx, kv.BlobChange{Put: []kv.Blob{{Path: path}}}); err == nil {
			t.Errorf("%q was written as a blob", path)
		}
	}
	if _, err := s.ChangeBlobs(ctx, kv.BlobChange{Put: []kv.Blob{{Path: "keys/big", Raw: make([]byte, kv.MaxTxnBytes)}}}); err == nil {
		t.Error("a blob that does not fit was written")
	}
}
