package serve

import "sync"

// buffers is the pool into which gRPC reads frames. gRPC's own pool clears each buffer, which costs a tenth of a
// microsecond per frame. Here no unwritten byte is read, so buffers are not cleared. A frame has at most 16 KB.
type buffers struct{ small, large sync.Pool }

const (
	smallBuffer = 4 << 10
	largeBuffer = 16 << 10 // the largest frame that the server accepts
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
