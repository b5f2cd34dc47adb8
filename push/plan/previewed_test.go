//go:build !race

package plan_test

import (
	"flag"
	"strconv"
	"testing"
)

// TestPreviewsPredict previews 60 edits, or 2,000 with more histories than usual. With the race detector it needs
// several times as long (see TestPreviewsBeside).
func TestPreviewsPredict(t *testing.T) {
	n, _ := strconv.Atoi(flag.Lookup("histories").Value.String())
	if n > 6 {
		predict(t, 20, 100)
		return
	}
	predict(t, 3, 20)
}
