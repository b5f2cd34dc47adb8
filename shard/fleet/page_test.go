package fleet

import (
	"encoding/json"
	"strings"
	"testing"

	"navarch.io/navarch/shard/ring"
)

// The page shows the shards of a replica as one line, for any number of shards and gaps; tools request the list.
func TestFleetPageIsForPeople(t *testing.T) {
	every := func(step int) (shards []int) {
		for s := 0; s < ring.Shards; s += step {
			shards = append(shards, s)
		}
		return shards
	}
	for want, shards := range map[string][]int{
		"":                nil,
		"7":               {7},
		"0-1, 3, 254-255": {0, 1, 3, 254, 255},
		"0-255":           every(1),
		"0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 116 more": every(2),
	} {
		if got := ranges(shards); got != want {
			t.Errorf("%d shards: got %q, want %q", len(shards), got, want)
		}
	}
	r := ring.Assign(nil, []ring.Member{{Name: "a", Weight: 100}, {Name: "b", Weight: 100}, {Name: "c", Weight: 100}}, ring.Load{})
	for _, owners := range []bool{false, true} {
		page := page{}
		page.assign(r, owners)
		raw, err := json.MarshalIndent(page, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, m := range page.Members {
			sum += m.Shards
		}
		if lines := strings.Count(string(raw), "\n"); sum != ring.Shards || (lines > 40) != owners || (len(page.Owners) == ring.Shards) != owners {
			t.Errorf("owners=%v: %d lines, %d shards, %d owners\n%s", owners, lines, sum, len(page.Owners), raw)
		}
	}
}
