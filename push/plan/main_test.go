package plan

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets more garbage lie: little lives here, and much is made of it. It saves a third of the processor time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
