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
	free chan []byte
	wait func(func()) // runs a call that may block
}

const (
	numRooms   = 32
	patientFor = time.Second
)

func newRooms() chan []byte {
	free := make(chan []byte, numRooms)
	for range numRooms {
		free <- nil
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
	var b []byte
	got := false
	select {
	case b = <-r.free:
		got = true
	default:
		r.wait(func() {
			t := time.NewTimer(patientFor)
			defer t.Stop()
			select {
			case b = <-r.free:
				got = true
			case <-t.C:
			}
		})
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
		r.free <- b
	case cap(b) == smallPart:
		parts.Put((*[smallPart]byte)(b[:smallPart]))
	}
}

// reads holds what is read at once where more comes than fits the idle buffer.
var reads = sync.Pool{New: func() any { return new([readSize]byte) }}

const readSize = 64 << 10

// output is frames that wait to be written with one call.
type output struct {
	buf    bytes.Buffer
	framer *http2.Framer
}

var outputs = sync.Pool{New: func() any {
	o := &output{}
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
