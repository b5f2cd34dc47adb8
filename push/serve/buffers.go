package serve

import "sync"

// buffers is what gRPC reads frames into. Its own pool clears a buffer each time, a tenth of a microsecond for each frame of
// a proxy that claims what it holds; nothing here reads a byte that was not written. A frame is 16 KB at most.
type buffers struct{ small, large sync.Pool }

const (
	smallBuffer = 4 << 10
	largeBuffer = 16 << 10 // the largest frame that the server takes
)

// Get implements mem.BufferPool.
func (p *buffers) Get(n int) *[]byte {
	pool, size := &p.small, smallBuffer
	switch {
	case n > largeBuffer:
		b := make([]byte, n)
		return &b
	case n > smallBuffer:
		pool, size = &p.large, largeBuffer
	}
	if b, ok := pool.Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, size)
	return &b
}

// Put implements mem.BufferPool.
func (p *buffers) Put(b *[]byte) {
	switch cap(*b) {
	case smallBuffer:
		p.small.Put(b)
	case largeBuffer:
		p.large.Put(b)
	}
}
