package relay

import (
	"sync"
	"sync/atomic"
	"time"
)

// keptStreams is the number of ended streams on the debug page.
const keptStreams = 16

// Stats is the content of the debug page. Requests go up to the control plane, responses come down from it. Message
// bytes are gRPC payloads; socket bytes include TLS and HTTP/2 framing.
type Stats struct {
	Address   string `json:"address"`            // Config.Target
	Connected bool   `json:"connected"`          // at least one stream has an upstream now
	Upstream  string `json:"upstream,omitempty"` // dialled address of the newest connected stream
	Peer      string `json:"peer,omitempty"`     // IP and port of that connection
	Owner     string `json:"owner,omitempty"`    // the replica that owns this proxy, by the last answer
	AtOwner   bool   `json:"atOwner"`            // the answering replica is the owner

	Moves       uint64 `json:"moves"`       // changes to the owner's upstream, unnoticed by Envoy
	MovesFailed uint64 `json:"movesFailed"` // moves that left the stream where it was
	Resumes     uint64 `json:"resumes"`     // replaced upstreams, unnoticed by Envoy
	Taken       uint64 `json:"taken"`       // accepted resources of the agent's own subscriptions
	Refused     uint64 `json:"refused"`     // refused ones
	Revision    int64  `json:"revision"`    // highest revision of the store in a response: the minimum revision
	Store       string `json:"store,omitempty"`

	// StreamsOpened counts streams that Envoy opened, StreamsActive the open ones, Connects those that reached the
	// control plane.
	StreamsOpened uint64     `json:"streamsOpened"`
	StreamsActive int        `json:"streamsActive"`
	Connects      uint64     `json:"connects"`
	Failures      uint64     `json:"failures"` // refused dials and ended upstreams
	LastConnect   *time.Time `json:"lastConnect,omitempty"`
	LastError     string     `json:"lastError,omitempty"`
	RetryInMS     int64      `json:"retryInMs"` // wait of the next dial
	Total         Traffic    `json:"total"`     // of all streams since the start
	Rejected      []Refused  `json:"rejected,omitempty"`
	Streams       []Stream   `json:"streams"` // upstreams, oldest first; some ended ones are included
}

// Traffic counts messages and bytes per direction.
type Traffic struct {
	Requests        uint64 `json:"requests"`
	RequestBytes    uint64 `json:"requestBytes"`
	Responses       uint64 `json:"responses"`
	ResponseBytes   uint64 `json:"responseBytes"`
	OwnResponses    uint64 `json:"ownResponses"` // of the agent's own subscriptions, not among Responses
	OwnBytes        uint64 `json:"ownResponseBytes"`
	SocketSentBytes uint64 `json:"socketSentBytes"`
	SocketReadBytes uint64 `json:"socketReadBytes"`
}

// Stream is one upstream of Envoy's stream. A delta stream may have several in sequence.
type Stream struct {
	ID           uint64     `json:"id"`
	Of           uint64     `json:"of"` // number of Envoy's stream
	Address      string     `json:"address"`
	Peer         string     `json:"peer,omitempty"`
	Method       string     `json:"method"`
	Opened       time.Time  `json:"opened"`
	Connected    *time.Time `json:"connected,omitempty"`
	Ended        *time.Time `json:"ended,omitempty"`
	Error        string     `json:"error,omitempty"`
	LastRequest  *time.Time `json:"lastRequest,omitempty"`
	LastResponse *time.Time `json:"lastResponse,omitempty"`
	Traffic
}

// Stats returns the present counters.
func (r *Relay) Stats() Stats {
	s := r.stats.snapshot()
	s.RetryInMS = r.pace.wait(time.Now()).Milliseconds()
	seen := r.minRevision.get()
	s.Store, s.Revision = seen.Store, seen.Revision
	return s
}

// stream counts one upstream; the pumps increment it without a lock.
type stream struct {
	id, of                    uint64
	method, address           string
	opened                    time.Time
	peer                      atomic.Pointer[string]
	connected, ended          atomic.Pointer[time.Time]
	lastRequest, lastResponse atomic.Pointer[time.Time]
	failure                   atomic.Pointer[string]
	requests, requestBytes    atomic.Uint64
	responses, responseBytes  atomic.Uint64
	own, ownBytes             atomic.Uint64
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

// heard counts a response to the agent itself, which Envoy does not receive.
func (s *stream) heard(n int) {
	s.own.Add(1)
	s.ownBytes.Add(uint64(n))
}

func (s *stream) end(err error) {
	if err != nil {
		text := err.Error()
		s.failure.Store(&text)
	}
	now := time.Now()
	s.ended.Store(&now)
}

func (s *stream) peerText() string {
	if p := s.peer.Load(); p != nil {
		return *p
	}
	return ""
}

func (s *stream) traffic() Traffic {
	return Traffic{
		Requests: s.requests.Load(), RequestBytes: s.requestBytes.Load(),
		Responses: s.responses.Load(), ResponseBytes: s.responseBytes.Load(),
		OwnResponses: s.own.Load(), OwnBytes: s.ownBytes.Load(),
		SocketSentBytes: s.socketOut.Load(), SocketReadBytes: s.socketIn.Load(),
	}
}

func (t *Traffic) add(u Traffic) {
	t.Requests += u.Requests
	t.RequestBytes += u.RequestBytes
	t.Responses += u.Responses
	t.ResponseBytes += u.ResponseBytes
	t.OwnResponses += u.OwnResponses
	t.OwnBytes += u.OwnBytes
	t.SocketSentBytes += u.SocketSentBytes
	t.SocketReadBytes += u.SocketReadBytes
}

// counters is the relay's statistics. Its mutex guards the list of streams and the plain fields.
type counters struct {
	target string

	moves, movesFailed, resumes, taken, refused atomic.Uint64

	mu          sync.Mutex
	streams     []*stream // open ones, and the last that ended
	past        Traffic   // of streams no longer listed
	upstreams   uint64
	opened      uint64 // streams of Envoy
	active      int
	owner       string
	atOwner     bool
	connects    uint64
	failures    uint64
	lastConnect *time.Time
	lastError   string
	away        bool               // the last event was a failure
	refusals    map[string]Refused // by type, of Envoy's newest stream
}

// begin counts a stream of Envoy and returns its number; finish ends it.
func (c *counters) begin() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	c.active++
	c.refusals = map[string]Refused{}
	return c.opened
}

func (c *counters) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
}

func (c *counters) owned(addr string, self bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner, c.atOwner = addr, self
}

func (c *counters) ownerAddr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner
}

// tookOne counts a resource of the agent's own subscriptions.
func (c *counters) tookOne(err error) {
	if err != nil {
		c.refused.Add(1)
		return
	}
	c.taken.Add(1)
}

// open counts an upstream of Envoy's stream.
func (c *counters) open(of uint64, method, address string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upstreams++
	s := &stream{id: c.upstreams, of: of, method: method, address: address, opened: time.Now()}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	s.connected.Store(&at) // under mu, so that a snapshot is consistent
	c.connects++
	c.lastConnect, c.lastError, c.away = &at, "", false
}

// failed records a failure, and reports whether it is the first after a success.
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
		StreamsActive: c.active, Owner: c.owner, AtOwner: c.atOwner,
		Moves: c.moves.Load(), MovesFailed: c.movesFailed.Load(), Resumes: c.resumes.Load(),
		Taken: c.taken.Load(), Refused: c.refused.Load(), Rejected: c.listRefused(),
	}
	for _, s := range c.streams {
		row := Stream{
			ID: s.id, Of: s.of, Address: s.address, Peer: s.peerText(),
			Method: s.method, Opened: s.opened, Connected: s.connected.Load(), Ended: s.ended.Load(),
			LastRequest: s.lastRequest.Load(), LastResponse: s.lastResponse.Load(), Traffic: s.traffic(),
		}
		if text := s.failure.Load(); text != nil {
			row.Error = *text
		}
		if row.Ended == nil && row.Connected != nil {
			out.Connected, out.Upstream, out.Peer = true, row.Address, row.Peer
		}
		out.Total.add(row.Traffic)
		out.Streams = append(out.Streams, row)
	}
	return out
}
