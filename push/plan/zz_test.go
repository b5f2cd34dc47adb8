package plan

import (
	"fmt"
	"testing"
)

func TestZZ(t *testing.T) {
	for run := range 2 {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			for seed := 1000 + uint64(run); seed < 1600; seed += 2 {
				d := newRandomRun(t, seed, &affects)
				for i := range 50 {
					d.step(i)
					d.drain()
					if diff := d.differs(1); diff != "" {
						t.Errorf("seed %d step %d: %s", seed, i, diff)
						break
					}
				}
			}
		})
	}
}
