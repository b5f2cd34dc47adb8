package listwatch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Bounds in bytes of decoded data: of a response, and of an event of a watch. A page of a list is read again with fewer
// objects if it is too large: an API server accepts no request of more than 3 MiB (--max-request-bytes), and etcd no
// object of more than 1.5 MiB.
const (
	maxAnswer = 16 << 20
	maxEvent  = 12 << 20
)

// ErrTooLarge means that a response exceeds its bound.
var ErrTooLarge = errors.New("the API server's answer, or an event of its watch, is too large: more than 16, or 12, MiB")

// Transport bounds all responses of another transport (rest.Config.Wrap). In watches the bound is for each event.
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

// WrappedRoundTripper lets client-go find the inner transport.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// body is a response that ends with ErrTooLarge once its meter is exhausted.
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

// meter counts the bytes that may still be read.
type meter struct {
	limit int64
	left  atomic.Int64
}

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

func (m *meter) exceeded() bool { return m.left.Load() < 0 }

type meterKey struct{}

// attach returns a context whose request is counted by this meter.
func (m *meter) attach(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}
