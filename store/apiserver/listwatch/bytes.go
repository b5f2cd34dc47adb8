package listwatch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Bounds in bytes of decompressed data. If a page of a list exceeds maxAnswer, it is read again with fewer objects. One
// object always fits: an API server accepts requests of up to 3 MiB, and etcd accepts objects of up to 1.5 MiB.
const (
	maxAnswer = 16 << 20 // largest response
	maxEvent  = 12 << 20 // largest event of a watch
)

// ErrTooLarge means that a response, or an event of a watch, exceeds its bound.
var ErrTooLarge = errors.New("the API server's answer has more than 16 MiB, or an event of its watch more than 12 MiB")

// Transport returns a transport that bounds the responses of next, for rest.Config.Wrap. The bound is 12 MiB for each
// event of a watch that Bound has made, and 16 MiB for any other response. Bytes are counted after decompression.
// Reading beyond the bound fails with ErrTooLarge. Errors of next are returned unchanged.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	m, is := r.Context().Value(meterKey{}).(*meter)
	if !is {
		m = newMeter(maxAnswer)
	}
	answer.Body = &body{answer.Body, m}
	return answer, nil
}

// WrappedRoundTripper returns the inner transport. client-go calls it.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// body is the body of a response. Read fails with ErrTooLarge when more bytes were read than the meter permits.
type body struct {
	io.ReadCloser
	meter *meter
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.meter.left.Add(-int64(n)) < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// meter counts the bytes that may still be read. It is safe for concurrent use.
type meter struct {
	limit int64
	left  atomic.Int64
}

// newMeter returns a meter for limit bytes.
func newMeter(limit int64) *meter {
	m := &meter{limit: limit}
	m.reset()
	return m
}

// reset restores the limit after an event. An exceeded meter stays exceeded.
func (m *meter) reset() {
	for left := m.left.Load(); left >= 0 && !m.left.CompareAndSwap(left, m.limit); left = m.left.Load() {
	}
}

// exceeded reports whether more than the limit was read.
func (m *meter) exceeded() bool { return m.left.Load() < 0 }

// meterKey is the key of a meter in a context.
type meterKey struct{}

// attach returns a context for a request whose response the meter counts.
func (m *meter) attach(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}
