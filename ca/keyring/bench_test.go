package keyring_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// BenchmarkAppend is the journal with 256 callers at once, against an etcd that does not wait for its disk.
func BenchmarkAppend(b *testing.B) {
	w := newHarness(b)
	r := w.replica()
	r.settle()
	end := w.now().Add(24 * time.Hour)
	var n atomic.Int64
	b.SetParallelism(128)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			err := r.Append(b.Context(), keyring.Issue{Serial: fmt.Sprintf("%032x", n.Add(1)), Identity: "spiffe://cluster.local/ns/default/sa/web",
				Epoch: 1, Generation: 1, NotBefore: w.now(), NotAfter: end, By: "token", Pod: "web-7d4b9c6f5-abcde", Peer: "10.0.0.1:40000"})
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/float64(max(1, len(w.blobs("certificates/")))), "entries/txn")
}

// BenchmarkLoad is the start of a replica until it can sign.
func BenchmarkLoad(b *testing.B) {
	w := newHarness(b)
	w.replica().settle()
	for b.Loop() {
		r := w.replica()
		r.settle()
		if r.State().Active == nil {
			b.Fatal(r.State())
		}
		r.stop()
	}
}
