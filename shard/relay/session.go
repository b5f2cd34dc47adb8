package relay

import (
	"fmt"
	"time"

	"google.golang.org/grpc/mem"

	"navarch.io/navarch/push/agentapi"
)

// timing holds the durations of a session. Tests shorten them.
type timing struct {
	admission time.Duration // longest wait of a move for admission; longer than place.AdmissionConfig.Longest
	patience  time.Duration // longest wait of a move for responses in flight, and for answers to new subscriptions
	spread    time.Duration // random delay of moves, since a change of owners moves thousands of agents at once
	resume    time.Duration // random delay of the replacement of an ended upstream
	look      time.Duration // interval of checks whether a waiting move can continue
	between   time.Duration // first pause between two moves or failed moves; each further pause is twice as long
	longest   time.Duration // longest pause between two moves
	lower     time.Duration // time for which lagging replicas must refuse before the minimum revision is lowered
}

var defaultTiming = timing{
	admission: 150 * time.Second, patience: 5 * time.Second, spread: 2 * time.Second, resume: 500 * time.Millisecond,
	look: 250 * time.Millisecond, between: time.Second, longest: time.Minute, lower: time.Minute,
}

// session is the state of one delta stream of Envoy: its upstream connections (connections to the control plane), its
// messages in flight, and its moves to other replicas. It has no clocks, sockets or goroutines: step handles an event,
// and returns the effects (actions) in order. The loop (stream.go) performs the effects.
//
// Envoy uses the live connection. Until the first connection is ready, Envoy's requests are not read. While the live
// connection is replaced, requests change only the mirror, the copy of Envoy's state. The first requests on the new
// connection are made from the mirror. During a move there is a second connection, next (move.go).
type session struct {
	target string
	follow bool
	own    map[string]bool // types of the agent's own subscriptions
	t      timing
	pace   movePace

	mirror  mirror
	node    []byte // the newest node in Envoy's requests, as an encoded field
	trusted bool   // the mirror has the whole state of Envoy
	begun   bool   // Envoy's first request was sent upstream
	closing bool   // Envoy sends no more requests
	once    bool   // an upstream connection has been ready at least once

	conns uint32 // number of connections so far
	live  *connState
	next  *connState // connection to the new replica; nil: no move is under way
	until time.Time  // deadline of the present step of the move
	known string     // address of the last known owner, initially from other streams of the relay
	out   []effect
}

// connState is the state of one upstream.
type connState struct {
	id       uint32
	addr     string
	prefix   string // prefix of the nonces that Envoy receives; empty for the first connection
	ready    bool
	in       bool            // for the connection of a move: the server has admitted the stream
	said     bool            // a request with the node was sent on this connection
	open     map[string]bool // types with a request on this connection
	asked    bool            // the owner was requested
	answered bool            // the owner was received
	owner    agentapi.Owner  // the last received owner
}

// These are the events that step handles.
type (
	started   struct{} // the first event
	tick      struct{}
	connReady struct{ conn uint32 }
	connProof struct{ conn uint32 } // the response headers came
	connEnded struct {
		conn uint32
		err  error
	}
	fromEnvoy struct {
		data mem.BufferSlice
		head request
		err  error // error of parsing data
	}
	envoyEnds struct{}
	fromConn  struct {
		conn uint32
		data mem.BufferSlice
		head response
		err  error // error of parsing data
	}
	taken struct { // result of Subscription.Take for a response
		conn       uint32
		url, nonce string
		err        error
	}
)

// These are the effects that step returns.
type (
	dial struct {
		conn  uint32
		addr  string
		after time.Duration
	}
	drop   struct{ conn uint32 }
	sendUp struct {
		conn uint32
		data mem.BufferSlice
	}
	endUp    struct{ conn uint32 } // no more requests follow
	ask      struct{ conn uint32 } // send the first requests of Config.Own, and the agent's report
	sendDown struct {
		conn uint32
		data mem.BufferSlice
	}
	take struct {
		conn       uint32
		url, nonce string
		data       mem.BufferSlice
	}
	finish struct{ err error }
	notice struct { // for statistics and log
		what what
		addr string
		self bool // the live connection's replica is the owner; only for owned
		err  error
	}
)

type what uint8

const (
	moved what = iota
	moveFailed
	resumed
	owned // an owner was received on the live connection
)

type (
	event  any
	effect any
)

// step handles one event and returns the effects in order. Only step changes a session.
func (s *session) step(now time.Time, e event) []effect {
	s.out = nil
	switch e := e.(type) {
	case started:
		s.trusted = true
		s.dial(s.candidate(now), 0)
	case connReady:
		s.upstreamReady(now, e.conn)
	case connProof:
		s.letIn(now, e.conn)
	case connEnded:
		s.upstreamEnded(now, e.conn, e.err)
	case fromEnvoy:
		s.request(now, e)
	case envoyEnds:
		if s.closing = true; s.live.ready {
			s.do(endUp{s.live.id})
		} else {
			s.do(finish{errUntrusted})
		}
	case fromConn:
		s.letIn(now, e.conn)
		s.response(now, e)
	case taken:
		if s.is(s.live, e.conn) || s.is(s.next, e.conn) {
			s.do(sendUp{e.conn, encodeAnswer(e.url, e.nonce, e.err)})
		}
	}
	s.advance(now)
	return s.out
}

// reads reports whether Envoy's next request may be read. Envoy's first requests wait for an upstream connection, so
// that they pass unchanged.
func (s *session) reads() bool { return s.once }

func (s *session) do(e effect) { s.out = append(s.out, e) }

func (s *session) is(l *connState, id uint32) bool { return l != nil && l.id == id }

// dial replaces the live connection. The new connection is dialled after a pause.
func (s *session) dial(addr string, after time.Duration) {
	s.live = s.conn(addr)
	s.do(dial{s.live.id, addr, after})
}

func (s *session) conn(addr string) *connState {
	s.conns++
	return &connState{id: s.conns, addr: addr, open: map[string]bool{}}
}

// candidate returns the address to dial. It is the owner's address if s.follow is true, the owner is known, and s.pace
// permits a move now. In all other cases it is s.target.
func (s *session) candidate(now time.Time) string {
	if s.follow && s.known != "" && s.pace.open(now) {
		return s.known
	}
	return s.target
}

func (s *session) upstreamReady(now time.Time, id uint32) {
	switch {
	case s.is(s.next, id):
		s.next.ready = true
		s.next.prefix = fmt.Sprintf("navarch-%d-", id)
		s.next.said = true
		s.until = now.Add(s.t.admission)
		s.askOwner(s.next, s.node) // with this request the stream waits for admission
	case s.is(s.live, id):
		s.live.ready = true
		if !s.once {
			s.once = true
			return
		}
		s.live.prefix = fmt.Sprintf("navarch-%d-", id)
		s.restate(s.live)
		s.do(notice{what: resumed, addr: s.live.addr})
	}
}

// restate sends the first request of each subscribed type on a new connection, with Envoy's versions.
func (s *session) restate(l *connState) {
	if !s.begun {
		return
	}
	node := s.node
	if l.said {
		node = nil
	}
	for _, k := range s.mirror.types {
		if !k.wanted() {
			continue // an empty first request would be a wildcard
		}
		names, initial := k.restate()
		s.do(sendUp{l.id, encodeFirst(node, k.url, names, initial)})
		l.open[k.url] = true
		node = nil
		l.said = true
	}
	if l.said {
		s.agentTypes(l)
	}
}

// agentTypes sends the first requests of the agent's own subscriptions: the subscription to the owner, and those of
// Config.Own.
func (s *session) agentTypes(l *connState) {
	s.askOwner(l, nil)
	s.do(ask{l.id})
}

// askOwner requests the owner without stating a version, because the answer differs between replicas (Owner.Self).
func (s *session) askOwner(l *connState, node []byte) {
	if s.follow && !l.asked {
		l.asked = true
		s.do(sendUp{l.id, encodeFirst(node, agentapi.OwnerURL, []string{agentapi.OwnerName}, nil)})
	}
}

func (s *session) upstreamEnded(now time.Time, id uint32, err error) {
	if s.is(s.next, id) {
		s.giveUp(now, err)
		return
	}
	if !s.is(s.live, id) {
		return
	}
	died := s.live
	if died.addr != s.target {
		s.pace.space(now)
	}
	switch {
	case !s.once && died.addr != s.target:
		s.dial(s.target, 0)
		return
	case !s.once, s.closing, !s.trusted, !s.begun:
		// Envoy's stream ends with its upstream connection: only Envoy can state its versions on a new stream.
		s.do(finish{err})
		return
	}
	var jitter time.Duration
	if died.ready {
		jitter = time.Duration(s.pace.random() * float64(s.t.resume))
	}
	if s.next != nil {
		s.live, s.next = s.next, nil
		if s.live.ready {
			s.restate(s.live)
			s.do(notice{what: resumed, addr: s.live.addr})
		}
		if s.live.answered {
			s.owned()
		}
		return
	}
	s.dial(s.candidate(now), jitter)
}

func (s *session) request(now time.Time, e fromEnvoy) {
	if s.own[e.head.typeURL] {
		e.data.Free()
		return
	}
	if e.err != nil || e.head.strange {
		s.trusted = false
	}
	if e.head.node != nil {
		s.node = e.head.node
	}
	known := s.mirror.find(e.head.typeURL) != nil
	answered := s.record(now, e)
	if !s.live.ready {
		e.data.Free() // the mirror has it
		if !s.trusted {
			s.do(finish{errUntrusted})
		}
		return
	}
	data := s.translate(e, answered, known)
	if data == nil {
		return
	}
	if !s.live.said && s.begun {
		data = append(message(s.node), data...) // the mirror had nothing to restate on this connection
	}
	s.live.open[e.head.typeURL] = true
	s.do(sendUp{s.live.id, data})
	if !s.live.said {
		s.begun, s.live.said = true, true
		s.agentTypes(s.live)
	}
}

// translate adapts a request of Envoy to the live connection. The result is nil if there is nothing to send.
func (s *session) translate(e fromEnvoy, answered *sent, known bool) mem.BufferSlice {
	h := e.head
	if s.live.prefix == "" || e.err != nil {
		return e.data
	}
	if known && !s.live.open[h.typeURL] && len(h.subscribe) == 0 {
		e.data.Free() // a first request of a type without names would subscribe to the wildcard
		return nil
	}
	switch {
	case h.nonce == "":
		return e.data
	case answered != nil && answered.conn == s.live.id:
		return amend(e.data, requestNonce, answered.upstream)
	case len(h.subscribe)+len(h.unsubscribe)+len(h.initial) == 0:
		e.data.Free() // it only answers a response of a previous connection
		return nil
	}
	return withoutNonce(e.data)
}

func (s *session) response(now time.Time, e fromConn) {
	h := e.head
	if ask := s.follow && h.typeURL == agentapi.OwnerURL && s.is(s.next, e.conn); !s.is(s.live, e.conn) && !ask {
		e.data.Free()
		return
	}
	known := e.err == nil && h.nonce != ""
	switch {
	case s.own[h.typeURL] && (!known || h.strange):
		e.data.Free()
	case !known:
		s.trusted = false
		s.do(sendDown{e.conn, e.data})
	case s.follow && h.typeURL == agentapi.OwnerURL:
		s.ownerAnswered(now, e)
	case s.own[h.typeURL]:
		s.do(take{e.conn, h.typeURL, h.nonce, e.data})
	default:
		s.trusted = s.trusted && !h.strange
		nonce := h.nonce
		if s.live.prefix != "" {
			nonce = s.live.prefix + nonce
			e.data = amend(e.data, responseNonce, nonce)
		}
		s.mirror.response(h, nonce, e.conn)
		s.do(sendDown{e.conn, e.data})
	}
}
