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

// These are the names of the bounds of callers, for Hooks.Bounded.
const (
	BoundStreams   = "streams"   // a stream was refused, or was ended so that its identity could open another stream
	BoundJoins     = "joins"     // a join was refused
	BoundNames     = "names"     // subscribed names were ignored; Hooks.Bounded receives their number
	BoundQuestions = "questions" // a tool's request was refused
	BoundMessages  = "messages"  // a stream was ended because its caller's requests in progress are too large
)

// sourceLimits bound the streams of one address on plain text, where only the address of a caller is known. They
// suffice for all proxies of a large node, or of many nodes behind a network gateway. Node IDs are unverified, so a
// new stream never ends an existing stream on plain text.
var sourceLimits = budget.Limits{Workload: 16384, Least: 16384, Names: 256 << 20, Asks: 16, Messages: 1 << 30,
	MessagesPerCredential: 1 << 30, MessagesInAll: math.MaxInt}

// largeRequest is the size in bytes from which on a request is counted while it is handled. Smaller requests are not
// counted, because counting needs a lock.
const largeRequest = 16 << 10

// hold counts the bytes of a request while it is handled. It returns the counted bytes, which the caller of hold must
// release (budget.Entry.Hold). A stream's first request counts until the join is over. If the identity exceeds its
// bound, the identity's stream with most bytes ends. The ended stream may be st.
func (st *stream) hold(bytes int) (counted int) {
	if bytes < largeRequest {
		return 0
	}
	st.place.Hold(bytes)
	return bytes
}

// enter counts the stream for the caller's identity, or for the client's address if the caller has no identity. If the
// identity or address may open no more streams, the error is a gRPC status.
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

// Holder describes a caller for budgets (push/budget). Identity of the result is "" for a caller without an ID. The
// parameter addr is the caller's address (ip:port). If addr has another form, the field From of the result is zero.
func Holder(who attest.Caller, addr string) budget.Holder {
	h := budget.Holder{Identity: who.ID.String(), Credential: who.Credential(), Pod: who.Pod != ""}
	if at, err := netip.ParseAddrPort(addr); err == nil {
		h.From = at.Addr().Unmap().WithZone("")
	}
	return h
}

// bounded counts a refusal because of the bound with the given name, and returns the gRPC status of the refusal.
func (st *stream) bounded(what string, err error) error {
	st.srv.cfg.Hooks.Bounded(what, 1)
	return exhausted(err)
}

// exhausted returns the status ResourceExhausted with the text of err. The details of the status ask the client to
// retry after 5 s.
func exhausted(err error) error {
	s := status.New(codes.ResourceExhausted, err.Error())
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(5 * time.Second)}); err == nil {
		s = with
	}
	return s.Err()
}

// leftOut reports to a hook and to the log that names of a request were ignored.
func (st *stream) leftOut(m delta.Message, names int) {
	st.srv.cfg.Hooks.Bounded(BoundNames, names)
	st.srv.clients.Warn("a proxy subscribes to too many names that do not exist: those beyond its limit are ignored",
		typeName(m.Type, m.TypeURL),
		append(st.about(errors.New("they are neither answered nor kept")), "names", names)...)
}

// errAgain is the status of a stream that ends so that its client requests ignored names again.
var errAgain = status.Error(codes.Unavailable, "names were left out whose resources may exist now: request them again on another stream")
