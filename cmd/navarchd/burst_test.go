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
	if came(written).Bursts <= came(read).Bursts || came(removed).Bursts <= came(read).Bursts {
		t.Errorf("read %+v, written %+v, removed %+v", came(read), came(written), came(removed))
	}
	if edits := (ingest.Stats{Normalised: 100, Puts: 50, Deletes: 50}); came(edits).Bursts != 0 || came(edits).Edits < 100 {
		t.Errorf("of edits %+v", came(edits))
	}
	if gone := (ingest.Stats{Batches: 1, Deletes: 1}); came(gone).Edits != 1 {
		t.Errorf("of an object that is gone %+v", came(gone))
	}
}
