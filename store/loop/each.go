package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls do with each number below n, on all cores (GOMAXPROCS), and returns after the last call. The numbers are
// in ascending order, but calls overlap. A panic of do ends the process.
func Each(n int, do func(i int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	working.Wait()
}
