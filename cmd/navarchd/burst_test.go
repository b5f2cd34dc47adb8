package main

import (
	"testing"

	"navarch.io/navarch/store/ingest"
)

// A burst is over once its records are written, not once its objects are read; what becomes of single objects is none.
func TestBurst(t *testing.T) {
	read := ingest.Stats{Normalised: 3 * objectsOfBurst}
	written, removed := read, read
	written.Puts, removed.Deletes = 2*objectsOfBurst, 2*objectsOfBurst
	if burst(written) <= burst(read) || burst(removed) <= burst(read) {
		t.Errorf("read %d, written %d, removed %d", burst(read), burst(written), burst(removed))
	}
	if edits := (ingest.Stats{Normalised: 100, Puts: 50, Deletes: 50}); burst(edits) != 0 {
		t.Errorf("of edits %d", burst(edits))
	}
}
