package plan

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain raises the garbage collector's target, since the tests keep little memory and allocate much: this saves a
// third of the processor time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
