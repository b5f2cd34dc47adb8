package mirror

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A snapshot with a time ahead of the clock would never be too old: it is refused if the difference exceeds that of
// normal clocks.
func TestSnapshotFromTheFuture(t *testing.T) {
	now := time.Now()
	d := &Disk{Path: filepath.Join(t.TempDir(), "snapshot"), Mesh: "m", MaxAge: time.Hour}
	for ahead, want := range map[time.Duration]string{9 * time.Minute: "", 11 * time.Minute: "saved 11m0s in the future", 1000 * time.Hour: "clock"} {
		if err := d.save(Empty().Apply(7, nil, nil).New, 1, now.Add(ahead)); err != nil {
			t.Fatal(err)
		}
		_, _, err := d.load(now)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v ahead: %v", ahead, err)
		}
	}
}
