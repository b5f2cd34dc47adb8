package relay

import (
	"errors"
	"fmt"
	"net"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

var (
	errUntrusted = errors.New("what Envoy holds is not known, so it has to say it itself")
	errBusy      = errors.New("too much in flight to move")
)

// owner is what an upstream connection told of the owner of this proxy.
type owner struct {
	addr string // "": stay
	self bool
}

// wants says whether the stream should be elsewhere. Only the live connection is asked: what an earlier one told may be old.
func (s *session) wants() bool {
	l := s.live
	return s.follow && s.trusted && s.begun && !s.closing && l.ready && l.owner.addr != "" && !l.owner.self && l.owner.addr != l.addr
}

// advance takes a move as far as it goes now: dial the owner with nothing in flight, and ask it who the owner is, which is
// waiting to be let in; the live connection goes on all the while. When the owner has let the stream in, and nothing is in flight, it
// is told what Envoy would say and is the live connection from there on; the old one is dropped, with what it may have sent unread.
func (s *session) advance(now time.Time) {
	switch {
	case s.next == nil:
		if s.wants() && s.pace.open(now) && s.mirror.quiet(now, s.t.patience) {
			s.next = s.conn(s.live.owner.addr)
			s.until = now.Add(connectTimeout + s.t.patience)
			s.do(dial{s.next.id, s.next.addr, 0})
		}
	case !s.wants() || s.live.owner.addr != s.next.addr:
		s.do(drop{s.next.id}) // told otherwise meanwhile
		s.next = nil
	case s.next.in && s.mirror.quiet(now, s.t.patience):
		s.move(now)
	case !now.Before(s.until):
		s.giveUp(now, errBusy)
	}
}

// wake is when advance has to be called although nothing happens; zero: never.
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

// letIn notes the first sign of life of the server that a move goes to: its headers, which it sends to who was let in.
func (s *session) letIn(now time.Time, id uint32) {
	if s.is(s.next, id) && s.next.ready && !s.next.in {
		s.next.in = true
		s.until = now.Add(s.t.patience)
	}
}

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

func (s *session) giveUp(now time.Time, err error) {
	s.do(drop{s.next.id})
	s.do(notice{what: moveFailed, addr: s.next.addr, err: err})
	s.next = nil
	s.pace.space(now)
}

// told takes an answer to the question for the owner.
func (s *session) ownerAnswered(now time.Time, e fromConn) {
	o, is, err := parseOwner(e.data.Materialize())
	e.data.Free()
	s.do(sendUp{e.conn, encodeAnswer(OwnerType, e.head.nonce, err)})
	if err != nil || !is {
		return // removed: the replica does not know, and Envoy stays
	}
	if s.is(s.next, e.conn) { // it is asked once it is the live one
		s.next.owner, s.next.answered = o, true
		return
	}
	if o.addr != s.live.owner.addr {
		s.pace.spread(now, s.t.spread)
	}
	s.live.owner, s.live.answered = o, true
	s.owned()
}

// owned passes on who the owner is, as the live connection told.
func (s *session) owned() {
	o := s.live.owner
	s.known = o.addr
	s.do(notice{what: owned, addr: o.addr, self: o.self})
}

// parseOwner reads the resource of OwnerType out of a response; is: there is one.
func parseOwner(raw []byte) (o owner, is bool, err error) {
	var response discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(raw, &response); err != nil {
		return owner{}, false, err
	}
	for _, r := range response.Resources {
		var fields structpb.Struct
		if err := r.GetResource().UnmarshalTo(&fields); err != nil {
			return owner{}, false, err
		}
		o.addr = fields.Fields["address"].GetStringValue()
		o.self = fields.Fields["self"].GetBoolValue()
		if o.addr == "" {
			continue
		}
		if host, port, err := net.SplitHostPort(o.addr); err != nil || host == "" || port == "" {
			return owner{}, false, fmt.Errorf("address %q of the owner: want host:port", o.addr)
		}
	}
	return o, len(response.Resources) > 0, nil
}
