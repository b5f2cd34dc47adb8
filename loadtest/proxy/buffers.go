package proxy

import (
	"bytes"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Buffers exist while something is in them: an idle proxy has none but the few bytes that it waits with.

// parts holds beginnings of fields.
var parts = sync.Pool{New: func() any { return new([smallPart]byte) }}

const smallPart = 32 << 10

// rooms are the few buffers for beginnings of large fields (a RouteConfiguration of 250 KB). While all are taken, what
// comes for other proxies stays in the kernel's buffers: a server that sends to thousands at once, a piece to each in turn,
// would otherwise have the fleet keep thousands of halves. The wait has an end, so that a message which is larger than what
// the kernel takes cannot stop a server for long.
type rooms struct {
	free chan struct{} // one for each room that is not taken
	wait func(func())  // runs a call that may block
}

const (
	numRooms   = 32
	patientFor = time.Second
)

// larges are the rooms' buffers, for as long as the garbage collector leaves them while nobody uses them.
var larges = sync.Pool{New: func() any { return new([]byte) }}

func newRooms() chan struct{} {
	free := make(chan struct{}, numRooms)
	for range numRooms {
		free <- struct{}{}
	}
	return free
}

// take gives an empty buffer with room for n bytes, and whether it is one of the rooms.
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

// give takes a buffer back.
func (r *rooms) give(b []byte, large bool) {
	switch {
	case large:
		larges.Put(&b)
		r.free <- struct{}{}
	case cap(b) == smallPart:
		parts.Put((*[smallPart]byte)(b[:smallPart]))
	}
}

// reads holds what is read at once where more comes than fits the idle buffer; single, one record of TLS that has begun to
// come.
var (
	reads  = sync.Pool{New: func() any { return new([readSize]byte) }}
	single = sync.Pool{New: func() any { return new([oneRecord]byte) }}
)

const (
	readSize  = 64 << 10
	oneRecord = 18 << 10 // maxRecord, as the allocator rounds it up
)

// takeRead gives a buffer of one of these sizes; of any other: nil.
func takeRead(size int) []byte {
	switch size {
	case readSize:
		return reads.Get().(*[readSize]byte)[:]
	case oneRecord:
		return single.Get().(*[oneRecord]byte)[:]
	}
	return nil
}

// giveRead takes it back.
func giveRead(b []byte) {
	switch len(b) {
	case readSize:
		reads.Put((*[readSize]byte)(b))
	case oneRecord:
		single.Put((*[oneRecord]byte)(b))
	}
}

// output is frames that wait to be written with one call.
type output struct {
	buf    bytes.Buffer
	framer *http2.Framer
}

var outputs = sync.Pool{New: func() any {
	o := &output{}
	o.buf.Grow(readSize + 32<<10) // flushed when it is longer than the first, by a frame at most
	o.framer = http2.NewFramer(&o.buf, nil)
	o.framer.AllowIllegalWrites = true // malformed requests are part of the repertoire
	return o
}}

// input decodes the frames that are not DATA. Header tables are empty (SETTINGS_HEADER_TABLE_SIZE is 0), so nothing has to
// be remembered from one frame to the next.
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
