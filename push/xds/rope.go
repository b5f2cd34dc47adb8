package xds

import (
	"bytes"
	"iter"
	"slices"

	"google.golang.org/grpc/mem"
)

// Mentions says whether the body holds a string, for instance the name of a cluster: never no where the message has it
// in a field, sometimes yes where it is only part of another string.
func (r *Resource) Mentions(s string) bool {
	text := []byte(s)
	return bytes.Contains(r.head, text) || slices.ContainsFunc(r.tail, func(f *Fragment) bool { return bytes.Contains(f.Bytes, text) })
}

// Buffers is Delta in the form that gRPC sends, made once and shared by all streams; not to be changed. Releasing the
// buffers does nothing.
func (r *Resource) Buffers() mem.BufferSlice {
	r.box.Do(func() {
		for _, b := range r.Delta() {
			r.boxed = append(r.boxed, mem.SliceBuffer(b))
		}
	})
	return r.boxed
}

// Pieces iterates over the fragments that follow the head.
func (r *Resource) Pieces() iter.Seq[*Fragment] { return slices.Values(r.tail) }
