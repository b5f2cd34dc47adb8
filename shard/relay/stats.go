package relay

import (
	"sync"
	"sync/atomic"
	"time"
)

// keptStreams is how many ended streams the debug page still shows.
const keptStreams = 16

// Stats is what the debug page shows. Directions are seen from the agent: requests go up to the control plane, responses
// come down from it. Bytes of messages are gRPC payloads; socket bytes hold TLS and HTTP/2 framing too.
type Stats struct {
	Address   string `json:"address"`
	Connected bool   `json:"connected"` // at least one stream has its upstream now
	// StreamsOpened counts streams that Envoy opened, StreamsActive those that live, Connects those that reached the control plane.
	StreamsOpened uint64     `json:"streamsOpened"`
	StreamsActive int        `json:"streamsActive"`
	Connects      uint64     `json:"connects"`
	Failures      uint64     `json:"failures"` // refused dials and upstreams that ended
	LastConnect   *time.Time `json:"lastConnect,omitempty"`
	LastError     string     `json:"lastError,omitempty"`
	RetryInMS     int64      `json:"retryInMs"` // how long the next dial would be held
	Total         Traffic    `json:"total"`     // of all streams since the start
	Streams       []Stream   `json:"streams"`   // oldest first; ended ones are kept for a while
}

// Traffic is what passed, per direction.
type Traffic struct {
	Requests        uint64 `json:"requests"`
	RequestBytes    uint64 `json:"requestBytes"`
	Responses       uint64 `json:"responses"`
	ResponseBytes   uint64 `json:"responseBytes"`
	SocketSentBytes uint64 `json:"socketSentBytes"`
	SocketReadBytes uint64 `json:"socketReadBytes"`
}

// Stream is one stream of Envoy.
type Stream struct {
	ID           uint64     `json:"id"`
	Method       string     `json:"method"`
	Opened       time.Time  `json:"opened"`
	Connected    *time.Time `json:"connected,omitempty"`
	Ended        *time.Time `json:"ended,omitempty"`
	Error        string     `json:"error,omitempty"`
	LastRequest  *time.Time `json:"lastRequest,omitempty"`
	LastResponse *time.Time `json:"lastResponse,omitempty"`
	Traffic
}

// Stats returns the counters as they are now.
func (r *Relay) Stats() Stats {
	s := r.stats.snapshot()
	s.RetryInMS = r.pace.wait(time.Now()).Milliseconds()
	return s
}

// stream counts one stream; the pumps add to it without a lock.
type stream struct {
	id                        uint64
	method                    string
	opened                    time.Time
	connected, ended          atomic.Pointer[time.Time]
	lastRequest, lastResponse atomic.Pointer[time.Time]
	failure                   atomic.Pointer[string]
	requests, requestBytes    atomic.Uint64
	responses, responseBytes  atomic.Uint64
	socketIn, socketOut       atomic.Uint64
}

func (s *stream) sent(n int) {
	now := time.Now()
	s.requests.Add(1)
	s.requestBytes.Add(uint64(n))
	s.lastRequest.Store(&now)
}

func (s *stream) received(n int) {
	now := time.Now()
	s.responses.Add(1)
	s.responseBytes.Add(uint64(n))
	s.lastResponse.Store(&now)
}

func (s *stream) end(err error) {
	if err != nil {
		text := err.Error()
		s.failure.Store(&text)
	}
	now := time.Now()
	s.ended.Store(&now)
}

func (s *stream) traffic() Traffic {
	return Traffic{
		Requests: s.requests.Load(), RequestBytes: s.requestBytes.Load(),
		Responses: s.responses.Load(), ResponseBytes: s.responseBytes.Load(),
		SocketSentBytes: s.socketOut.Load(), SocketReadBytes: s.socketIn.Load(),
	}
}

func (t *Traffic) add(u Traffic) {
	t.Requests += u.Requests
	t.RequestBytes += u.RequestBytes
	t.Responses += u.Responses
	t.ResponseBytes += u.ResponseBytes
	t.SocketSentBytes += u.SocketSentBytes
	t.SocketReadBytes += u.SocketReadBytes
}

// counters is the relay's ledger. Its mutex guards the list of streams and the few facts of the whole.
type counters struct {
	target string

	mu          sync.Mutex
	streams     []*stream // those that live, and the last that ended
	past        Traffic   // of streams no longer listed
	opened      uint64
	connects    uint64
	failures    uint64
	lastConnect *time.Time
	lastError   string
	away        bool // the last thing that happened was a failure
}

func (c *counters) open(method string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	s := &stream{id: c.opened, method: method, opened: time.Now()}
	c.streams = append(c.streams, s)
	for i := 0; len(c.streams) > keptStreams && i < len(c.streams); {
		if old := c.streams[i]; old.ended.Load() != nil {
			c.past.add(old.traffic())
			c.streams = append(c.streams[:i:i], c.streams[i+1:]...)
			continue
		}
		i++
	}
	return s
}

func (c *counters) connected(s *stream, at time.Time) {
	s.connected.Store(&at)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connects++
	c.lastConnect, c.lastError, c.away = &at, "", false
}

// failed says whether this is the first failure after a success.
func (c *counters) failed(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.away
	c.failures++
	c.lastError, c.away = err.Error(), true
	return first
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := Stats{
		Address: c.target, StreamsOpened: c.opened, Connects: c.connects, Failures: c.failures,
		LastConnect: c.lastConnect, LastError: c.lastError, Total: c.past, Streams: make([]Stream, 0, len(c.streams)),
	}
	for _, s := range c.streams {
		row := Stream{
			ID: s.id, Method: s.method, Opened: s.opened, Connected: s.connected.Load(), Ended: s.ended.Load(),
			LastRequest: s.lastRequest.Load(), LastResponse: s.lastResponse.Load(), Traffic: s.traffic(),
		}
		if text := s.failure.Load(); text != nil {
			row.Error = *text
		}
		if row.Ended == nil {
			out.StreamsActive++
			out.Connected = out.Connected || row.Connected != nil
		}
		out.Total.add(row.Traffic)
		out.Streams = append(out.Streams, row)
	}
	return out
}
