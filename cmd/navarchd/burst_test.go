package main

import (
	"testing"

	"navarch.io/navarch/store/ingest"
)

// A burst ends once its records are written, not once its objects are read. Changes of single objects are no burst, but
// count as edits, also deletions.
func TestBurst(t *testing.T) {
	read := ingest.Stats{Normalised: 3 * objectsOfBurst}
	written, removed := read, read
	written.Puts, removed.Deletes = 2*objectsOfBurst, 2*objectsOfBurst
	if countWork(written).Bursts <= countWork(read).Bursts || countWork(removed).Bursts <= countWork(read).Bursts {
		t.Errorf("read %+v, written %+v, removed %+v", countWork(read), countWork(written), countWork(removed))
	}
	if edits := (ingest.Stats{Normalised: 100, Puts: 50, Deletes: 50}); countWork(edits).Bursts != 0 || countWork(edits).Edits < 100 {
		t.Errorf("of edits %+v", countWork(edits))
	}
	if gone := (ingest.Stats{Batches: 1, Deletes: 1}); countWork(gone).Edits != 1 {
		t.Errorf("of an object that is gone %+v", countWork(gone))
	}
}
