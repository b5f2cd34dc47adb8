package relay

import (
	"sync"
	"sync/atomic"
	"time"
)

// keptStreams bounds the list of upstreams (connections to the control plane). If the list is longer when an upstream
// opens, the oldest ended upstreams are dropped.
const keptStreams = 16

// Stats is the part of the agent's status that describes its streams to the control plane. The agent sends requests and
// receives responses. An upstream is one connection to the control plane. Message bytes are gRPC payloads; socket bytes
// include TLS and HTTP/2 framing.
type Stats struct {
	Address   string `json:"address"`            // Config.Target
	Connected bool   `json:"connected"`          // at least one upstream is connected now
	Upstream  string `json:"upstream,omitempty"` // address of the newest connected upstream, as it was dialled
	Peer      string `json:"peer,omitempty"`     // remote IP and port of that upstream
	Owner     string `json:"owner,omitempty"`    // last known address of the proxy's owner; empty: unknown, or no owner
	AtOwner   bool   `json:"atOwner"`            // the replica that named the owner is the owner itself

	Moves       uint64 `json:"moves"`           // completed moves to an owner, unnoticed by Envoy
	MovesFailed uint64 `json:"movesFailed"`     // moves that failed or took too long; abandoned moves do not count
	Resumes     uint64 `json:"resumes"`         // replacements of ended upstreams, unnoticed by Envoy
	Taken       uint64 `json:"taken"`           // accepted resources of the agent's own subscriptions
	Refused     uint64 `json:"refused"`         // refused resources of the agent's own subscriptions
	Revision    int64  `json:"revision"`        // revision that replicas must have (agentapi.MinRevision); 0: unknown
	Store       string `json:"store,omitempty"` // name of the store that Revision belongs to; empty: unknown

	// StreamsOpened counts the streams that Envoy has opened, and StreamsActive the streams that are still open.
	// Connects counts the upstreams that became connected. A delta stream may have several upstreams.
	StreamsOpened uint64     `json:"streamsOpened"`
	StreamsActive int        `json:"streamsActive"`
	Connects      uint64     `json:"connects"`
	Failures      uint64     `json:"failures"`              // failed dials and ended upstreams, except those of moves
	LastConnect   *time.Time `json:"lastConnect,omitempty"` // time of the newest connect; nil: never connected
	LastError     string     `json:"lastError,omitempty"`   // text of the newest failure; empty after the next connect
	RetryInMS     int64      `json:"retryInMs"`             // milliseconds until Address may be dialled; 0: at once
	Total         Traffic    `json:"total"`                 // traffic of all upstreams since the start
	// Rejected lists the resources that Envoy refused on its newest stream, sorted by type. State-of-the-world streams
	// have no list.
	Rejected []Refused `json:"rejected,omitempty"`
	// Streams lists the open upstreams and the last ended ones, in the order of opening. It is never nil.
	Streams []Stream `json:"streams"`
}

// Traffic counts messages and bytes per direction. Requests include those of the agent itself. Responses include only
// those that were sent to Envoy.
type Traffic struct {
	Requests      uint64 `json:"requests"`
	RequestBytes  uint64 `json:"requestBytes"`
	Responses     uint64 `json:"responses"`
	ResponseBytes uint64 `json:"responseBytes"`
	// OwnResponses counts responses to the agent's own requests, including those for the owner. Responses does not
	// include them.
	OwnResponses    uint64 `json:"ownResponses"`
	OwnBytes        uint64 `json:"ownResponseBytes"`
	SocketSentBytes uint64 `json:"socketSentBytes"`
	SocketReadBytes uint64 `json:"socketReadBytes"`
}

// Stream is one upstream of a stream of Envoy. A delta stream may have several in sequence, and two at a time during a
// move.
type Stream struct {
	ID        uint64     `json:"id"`                  // number of the upstream, from 1
	Of        uint64     `json:"of"`                  // number of Envoy's stream, from 1
	Address   string     `json:"address"`             // Config.Target, or the address of an owner
	Peer      string     `json:"peer,omitempty"`      // remote IP and port; empty before the dial succeeds
	Method    string     `json:"method"`              // full name of the gRPC method
	Opened    time.Time  `json:"opened"`              // time before the dial
	Connected *time.Time `json:"connected,omitempty"` // nil: never connected
	Ended     *time.Time `json:"ended,omitempty"`     // nil: still open
	// Error describes why the upstream ended. It is empty if the upstream is still open, or if the agent closed it.
	Error        string     `json:"error,omitempty"`
	LastRequest  *time.Time `json:"lastRequest,omitempty"`  // nil: no request was sent
	LastResponse *time.Time `json:"lastResponse,omitempty"` // nil: Envoy has received no response from this upstream
	Traffic
}

// Stats returns a copy of the present counters. The slices Streams and Rejected belong to the caller. The names and
// times inside must not be modified.
func (r *Relay) Stats() Stats {
	s := r.stats.snapshot()
	s.RetryInMS = r.pace.wait(time.Now()).Milliseconds()
	seen := r.minRevision.get()
	s.Store, s.Revision = seen.Store, seen.Revision
	return s
}

// stream has the counters of one upstream. The goroutines that read and write increment them without a lock.
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

// counters holds the relay's statistics. Its mutex guards the list of streams and the plain fields.
type counters struct {
	target string

	moves, movesFailed, resumes, taken, refused atomic.Uint64

	mu          sync.Mutex
	streams     []*stream // open upstreams and the last ended ones
	past        Traffic   // traffic of dropped upstreams
	upstreams   uint64
	opened      uint64 // number of Envoy's streams so far
	active      int
	owner       string
	atOwner     bool
	connects    uint64
	failures    uint64
	lastConnect *time.Time
	lastError   string
	away        bool               // no upstream has connected since the last failure
	refusals    map[string]Refused // by type, of Envoy's newest stream
}

// begin counts a new stream of Envoy, and returns its number. It drops the refusals of the previous stream. The caller
// calls finish when the new stream ends.
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

// open adds an upstream to the list, and drops ended upstreams above keptStreams. The argument envoyStream is the
// number of Envoy's stream.
func (c *counters) open(envoyStream uint64, method, address string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upstreams++
	s := &stream{id: c.upstreams, of: envoyStream, method: method, address: address, opened: time.Now()}
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
