package proxy

import (
	"bytes"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Buffers are allocated only while they contain data: an idle proxy has only a few bytes to read into.

// parts are buffers for incomplete fields.
var parts = sync.Pool{New: func() any { return new([smallPart]byte) }}

const smallPart = 32 << 10

// rooms limit the number of buffers for incomplete large fields (a RouteConfiguration has 250 KB). While all are in
// use, data for other proxies stays in the kernel. Otherwise a server that sends in turn to thousands of proxies would
// make the fleet buffer thousands of half messages. The wait is limited, so that a message larger than the kernel's
// buffers cannot block a server for long.
type rooms struct {
	free chan struct{} // one element for each free room
	wait func(func())  // runs a call that may block
}

const (
	numRooms   = 32
	patientFor = time.Second
)

// larges are the rooms' buffers; the garbage collector frees unused ones.
var larges = sync.Pool{New: func() any { return new([]byte) }}

func newRooms() chan struct{} {
	free := make(chan struct{}, numRooms)
	for range numRooms {
		free <- struct{}{}
	}
	return free
}

// take returns an empty buffer for n bytes, and whether it occupies a room. It waits for a room for patientFor at most.
func (r *rooms) take(n int) ([]byte, bool) {
	if n <= smallPart {
		return parts.Get().(*[smallPart]byte)[:0], false
	}
	if r == nil {
		return make([]byte, 0, n), false
	}
	got := false
	select {
	case <-r.free:
		got = true
	default:
		r.wait(func() {
			t := time.NewTimer(patientFor)
			defer t.Stop()
			select {
			case <-r.free:
				got = true
			case <-t.C:
			}
		})
	}
	var b []byte
	if got {
		b = *larges.Get().(*[]byte)
	}
	if cap(b) < n {
		b = make([]byte, 0, (n+64<<10)&^(64<<10-1))
	}
	return b[:0], got
}

// give returns a buffer.
func (r *rooms) give(b []byte, large bool) {
	switch {
	case large:
		larges.Put(&b)
		r.free <- struct{}{}
	case cap(b) == smallPart:
		parts.Put((*[smallPart]byte)(b[:smallPart]))
	}
}

// reads are buffers for a read of more data than the idle buffer can hold, single for one TLS record that has begun to
// arrive.
var (
	reads  = sync.Pool{New: func() any { return new([readSize]byte) }}
	single = sync.Pool{New: func() any { return new([oneRecord]byte) }}
)

const (
	readSize  = 64 << 10
	oneRecord = 18 << 10 // maxRecord, rounded up to the allocator's size class
)

// takeRead returns a buffer of one of these sizes; nil for any other size.
func takeRead(size int) []byte {
	switch size {
	case readSize:
		return reads.Get().(*[readSize]byte)[:]
	case oneRecord:
		return single.Get().(*[oneRecord]byte)[:]
	}
	return nil
}

// giveRead returns such a buffer.
func giveRead(b []byte) {
	switch len(b) {
	case readSize:
		reads.Put((*[readSize]byte)(b))
	case oneRecord:
		single.Put((*[oneRecord]byte)(b))
	}
}

// output collects frames that are written with one call.
type output struct {
	buf    bytes.Buffer
	framer *http2.Framer
}

var outputs = sync.Pool{New: func() any {
	o := &output{}
	o.buf.Grow(readSize + 32<<10) // flushed above readSize, which one frame may exceed
	o.framer = http2.NewFramer(&o.buf, nil)
	o.framer.AllowIllegalWrites = true // malformed requests are intended
	return o
}}

// input decodes frames other than DATA. The header table is empty (SETTINGS_HEADER_TABLE_SIZE is 0), so no state is
// kept between frames.
type input struct {
	buf    bytes.Reader
	framer *http2.Framer
}

var inputs = sync.Pool{New: func() any {
	in := &input{}
	in.framer = http2.NewFramer(nil, &in.buf)
	in.framer.ReadMetaHeaders = hpack.NewDecoder(0, nil)
	return in
}}
