package relay

import (
	"errors"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/agentapi"
)

var (
	errUntrusted = errors.New("the versions that Envoy has are unknown, so Envoy must state them on a new stream")
	errBusy      = errors.New("the owner did not admit the stream, or responses were in flight, for too long")
)

// wants reports whether the stream should move to the owner (the replica that should serve this proxy). Only an owner
// that the live connection has named counts, because the answer of an earlier connection may be outdated.
func (s *session) wants() bool {
	l := s.live
	return s.follow && s.trusted && s.begun && !s.closing && l.ready && l.owner.Address != "" && !l.owner.Self && l.owner.Address != l.addr
}

// advance performs the steps of a move that are due. When no response to Envoy is in flight, it dials the owner. On the
// new connection, upstreamReady requests the name of the owner. The new stream then waits for admission by the owner,
// while the live connection still serves Envoy. When the new stream is admitted and no response is in flight, the new
// connection becomes the live one. It receives Envoy's subscriptions and versions. The old connection is dropped, with
// any unread responses.
func (s *session) advance(now time.Time) {
	switch {
	case s.next == nil:
		if s.wants() && s.pace.open(now) && s.mirror.quiet(now, s.t.patience) {
			s.next = s.conn(s.live.owner.Address)
			s.until = now.Add(connectTimeout + s.t.patience)
			s.do(dial{s.next.id, s.next.addr, 0})
		}
	case !s.wants() || s.live.owner.Address != s.next.addr:
		s.do(drop{s.next.id}) // the live connection has named another owner, or the stream should no longer move
		s.next = nil
	case s.next.in && s.mirror.quiet(now, s.t.patience):
		s.move(now)
	case !now.Before(s.until):
		s.giveUp(now, errBusy)
	}
}

// wake returns the time at which to call advance even without an event. It returns zero if advance need not be called
// before the next event.
func (s *session) wake(now time.Time) time.Time {
	look := now.Add(s.t.look)
	switch {
	case s.next != nil && s.next.in && look.Before(s.until):
		return look
	case s.next != nil:
		return s.until
	case s.wants() && !s.pace.open(now):
		return s.pace.next
	case s.wants():
		return look
	}
	return time.Time{}
}

// letIn records that the owner has admitted the stream on the next connection. It is called when response headers or a
// response arrive on any connection.
func (s *session) letIn(now time.Time, id uint32) {
	if s.is(s.next, id) && s.next.ready && !s.next.in {
		s.next.in = true
		s.until = now.Add(s.t.patience)
	}
}

// move makes the next connection the live one.
func (s *session) move(now time.Time) {
	s.do(drop{s.live.id})
	s.live, s.next = s.next, nil
	s.restate(s.live)
	s.pace.space(now)
	s.do(notice{what: moved, addr: s.live.addr})
	if s.live.answered {
		s.owned()
	}
}

// giveUp ends a move without success.
func (s *session) giveUp(now time.Time, err error) {
	s.do(drop{s.next.id})
	s.do(notice{what: moveFailed, addr: s.next.addr, err: err})
	s.next = nil
	s.pace.space(now)
}

// ownerAnswered handles a response of type agentapi.OwnerURL.
func (s *session) ownerAnswered(now time.Time, e fromConn) {
	o, is, err := parseOwner(e.data.Materialize())
	e.data.Free()
	s.do(sendUp{e.conn, encodeAnswer(agentapi.OwnerURL, e.head.nonce, err)})
	if err != nil || !is {
		return // invalid, or removed (the replica does not know the owner): the last answer stays in effect
	}
	if s.is(s.next, e.conn) { // used when this connection becomes the live one
		s.next.owner, s.next.answered = o, true
		return
	}
	if o.Address != s.live.owner.Address {
		s.pace.spread(now, s.t.spread)
	}
	s.live.owner, s.live.answered = o, true
	s.owned()
}

// owned reports the owner that the live connection has named.
func (s *session) owned() {
	o := s.live.owner
	s.known = o.Address
	s.do(notice{what: owned, addr: o.Address, self: o.Self})
}

// parseOwner decodes the owner in a response. The boolean result is false if the response contains no owner.
func parseOwner(raw []byte) (o agentapi.Owner, is bool, err error) {
	var response discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(raw, &response); err != nil {
		return o, false, err
	}
	for _, r := range response.Resources {
		if o, err = agentapi.DecodeOwner(r.GetResource()); err != nil {
			return o, false, err
		}
	}
	return o, len(response.Resources) > 0, nil
}
