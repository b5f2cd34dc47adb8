package xds

import (
	"bytes"

	"google.golang.org/grpc/mem"
)

// Mentions says whether the body holds a string, for instance the name of a cluster: never no where the message has it
// in a field, sometimes yes where it is only part of another string.
func (r *Resource) Mentions(s string) bool {
	for _, segment := range r.body {
		if bytes.Contains(segment, []byte(s)) {
			return true
		}
	}
	return false
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
