package serve

import "sync"

// buffers is the pool of buffers into which gRPC reads frames. gRPC's own pool clears each buffer, which takes 0.1 µs
// per frame. This pool does not clear buffers, because gRPC writes every byte of a buffer before it reads the byte.
type buffers struct{ small, large sync.Pool }

// These are sizes of buffers in bytes.
const (
	smallBuffer = 4 << 10
	largeBuffer = 16 << 10 // size of the largest frame that the server accepts
)

// Get returns a buffer of n bytes, which may contain old bytes.
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

// Put returns a buffer to the pool. A buffer whose size is not one of the pool's two sizes is dropped.
func (p *buffers) Put(b *[]byte) {
	switch cap(*b) {
	case smallBuffer:
		p.small.Put(b)
	case largeBuffer:
		p.large.Put(b)
	}
}
