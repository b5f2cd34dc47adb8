package serve

import "testing"

// A buffer has the requested length and is reused without clearing. Large buffers are not kept.
func TestBuffers(t *testing.T) {
	for _, n := range []int{0, 1, smallBuffer - 1, smallBuffer, smallBuffer + 1, largeBuffer - 1, largeBuffer, largeBuffer + 1, 1 << 20} {
		var p buffers
		b := p.Get(n)
		if len(*b) != n {
			t.Fatalf("asked for %d, got %d", n, len(*b))
		}
		*b = (*b)[:n/2] // gRPC may shorten it
		p.Put(b)
		if again := p.Get(n); len(*again) != n {
			t.Fatalf("asked for %d again, got %d", n, len(*again))
		}
	}
	var p buffers
	for _, b := range []*[]byte{p.Get(largeBuffer + 1), new([]byte), {1}} {
		p.Put(b)
		if got := p.Get(1); cap(*got) != smallBuffer {
			t.Errorf("a buffer of %d is in the pool", cap(*b))
		}
	}
	for _, size := range []int{smallBuffer, largeBuffer} {
		// No allocation is expected, except for buffers that pools drop under the race detector.
		if n := testing.AllocsPerRun(100, func() { p.Put(p.Get(size)) }); n > 1 {
			t.Errorf("%v allocations for a buffer of %d", n, size)
		}
	}
}
