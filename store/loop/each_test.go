package loop

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// Each number is passed once, and no more calls overlap than there are cores.
func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		calls, now, most := make([]atomic.Int32, n), atomic.Int32{}, atomic.Int32{}
		Each(n, func(i int) {
			calls[i].Add(1)
			for m := now.Add(1); ; {
				if old := most.Load(); m <= old || most.CompareAndSwap(old, m) {
					break
				}
			}
			runtime.Gosched()
			now.Add(-1)
		})
		for i := range calls {
			if calls[i].Load() != 1 {
				t.Errorf("%d of %d: %d calls", i, n, calls[i].Load())
			}
		}
		if int(most.Load()) > runtime.GOMAXPROCS(0) {
			t.Errorf("%d calls at once", most.Load())
		}
	}
}
