package serve

import (
	"errors"
	"math"
	"net/netip"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/delta"
)

// What callers are bounded in (Hooks.Bounded).
const (
	BoundStreams   = "streams"   // one was refused, or ended for another one of its identity
	BoundJoins     = "joins"     // a join was refused
	BoundNames     = "names"     // names were left out
	BoundQuestions = "questions" // a question was refused
	BoundMessages  = "messages"  // a stream ended: its caller has too much in requests that wait
)

// sourceLimits are those of one address that streams come from on plain text, where all that is known of a caller is that address:
// enough for all proxies of a large node, or of a gateway that hides many nodes. Node ids are claims, and end nobody's streams.
var sourceLimits = budget.Limits{Workload: 16384, Least: 16384, Names: 256 << 20, Asks: 16, Messages: 1 << 30, MessagesPerCredential: 1 << 30, MessagesInAll: math.MaxInt}

// largeRequest is the size in bytes of requests that are counted while they are handled: smaller ones take no lock.
const largeRequest = 16 << 10

// hold counts a request, of so many bytes, while it is handled: a first one waits for its stream's turn to join, and is kept meanwhile. It
// gives what was counted, which is to be given back (budget.Entry.Hold). Where that is too much for the caller, the stream ends that has
// most, perhaps this one.
func (st *stream) hold(bytes int) (counted int) {
	if bytes < largeRequest {
		return 0
	}
	st.place.Hold(bytes)
	return bytes
}

// enter takes a place among the streams of the caller's identity, or, where it has shown none, of the address that it comes from.
func (st *stream) enter() (err error) {
	ledger, holder := st.srv.cfg.Callers, Holder(st.client.Caller, st.client.Addr)
	if st.client.Caller.ID.IsZero() {
		ledger, holder.Identity = st.srv.cfg.Sources, "plain text from "+holder.From.String()
	}
	st.place, err = ledger.Enter(holder, func(err error) {
		what := BoundStreams
		if errors.Is(err, budget.ErrMessages) {
			what = BoundMessages
		}
		st.srv.cfg.Hooks.Bounded(what, 1)
		st.kill(exhausted(err))
	})
	if err != nil {
		return st.bounded(BoundStreams, err)
	}
	return nil
}

// Holder is how budgets know a caller that connects from an address (host:port).
func Holder(who attest.Caller, from string) budget.Holder {
	h := budget.Holder{Identity: who.ID.String(), Credential: who.Credential(), Pod: who.Pod != ""}
	if at, err := netip.ParseAddrPort(from); err == nil {
		h.From = at.Addr().Unmap().WithZone("")
	}
	return h
}

// bounded counts that a caller may not have something, and makes the stream's status of it.
func (st *stream) bounded(what string, err error) error {
	st.srv.cfg.Hooks.Bounded(what, 1)
	return exhausted(err)
}

// exhausted is a status that says when to try again.
func exhausted(err error) error {
	s := status.New(codes.ResourceExhausted, err.Error())
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(5 * time.Second)}); err == nil {
		s = with
	}
	return s.Err()
}

// leftOut reports that names of a request were left out.
func (st *stream) leftOut(m delta.Message, names int) {
	st.srv.cfg.Hooks.Bounded(BoundNames, names)
	st.srv.clients.Warn("a proxy subscribes to too many names that do not exist: those beyond its limit are ignored", typeName(m.Type, m.TypeURL),
		append(st.about(errors.New("they are neither answered nor kept")), "names", names)...)
}

// errAgain is why a stream ends of which names were left out.
var errAgain = status.Error(codes.Unavailable, "names were left out, of which there may be something now: ask again on another stream")
