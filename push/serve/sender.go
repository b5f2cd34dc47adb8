package serve

import (
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/xds"
)

// sender decides which goroutine sends on a stream. One goroutine sends at a time. It begins with a granted turn, gets
// and writes responses until no response is left, and then stops. If another turn is granted meanwhile, the sending
// goroutine does the work of this turn too.
type sender struct {
	task task
	// again means that a turn was granted after the goroutine called offersNow and withheldNow. Both results may be
	// outdated.
	again bool
	// due means that the response being written exceeds the credit (the bytes that may be sent without an
	// acknowledgement). The client may be slow to read it, so the deadlines for acknowledging earlier responses do not
	// run meanwhile.
	due       bool
	unwritten bool // gRPC may still be writing the last answer, so the next response may block
}

// task is the work of the sending goroutine.
type task uint8

const (
	nobody  task = iota // no goroutine sends
	urgents             // a goroutine sends only the changes that do not wait for configuration
	all                 // a goroutine sends all changes
)

// outgoing is one response: an answer to a tool's request, or a reply of a subscribed type.
type outgoing struct {
	reply  delta.Reply
	answer *answer
	blocks bool // writing the response may block until the client reads
}

// what returns the name of the response's type, for log lines.
func (o *outgoing) what() string {
	if o.answer != nil {
		return o.answer.url
	}
	return typeName(o.reply.Type, o.reply.URL)
}

// begin begins a granted turn of the stream. The parameter plan is the newest plan that may be sent on the stream; 0
// does not change the permitted plan. The result is true if the caller becomes the sending goroutine and must call
// next. It is false if the stream has ended, or if another goroutine sends. A goroutine that is already sending also
// does the work of this turn.
func (x *exchange) begin(urgent bool, plan int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if plan > 0 {
		x.may.Store(max(x.may.Load(), plan))
		x.rollout.turn = true
	}
	switch s := &x.sender; {
	case x.closed:
		return false
	case s.task != nobody:
		s.again = true
		if !urgent {
			s.task = all
		}
		return false
	case urgent:
		s.task = urgents
	default:
		s.task = all
	}
	x.sender.again = false
	return true
}

// stop records that the sending goroutine cannot continue.
func (x *exchange) stop() { x.locked(func() { x.sender.task, x.sender.due = nobody, false }) }

// sending reports whether a goroutine sends, or the stream has ended.
func (x *exchange) sending() (is bool) {
	x.locked(func() { is = x.sender.task != nobody || x.closed })
	return is
}

// found is the result of next.
type found uint8

const (
	nothing   found = iota // no response is left; the caller is no longer the sending goroutine
	something              // there is a response, which the caller must write
	// lookAgain means that a turn was granted after the caller called offersNow and withheldNow. The caller must call
	// both again, and then call next again.
	lookAgain
)

// next returns the next response to write. The parameters w and offered are the results of withheldNow and offersNow,
// which the caller has just called. If all changes were sent, the result since is the result of converged. In all other
// cases it is zero.
func (x *exchange) next(now time.Time, w *withheld, offered *offers) (out outgoing, f found, since time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.sender
	s.due = false
	if x.closed {
		s.task = nobody
		return out, nothing, since
	}
	x.state.Tick(now)
	x.state.Withhold(w.covers())
	x.offer(offered)
	if out.answer = x.nextAnswer(); out.answer != nil {
		out.blocks, s.unwritten = true, true
		return out, something, since
	}
	set, ok := x.proxy.Set(), false
	x.state.Target(set)
	urgent := s.task == urgents || !x.begins(set, now)
	if urgent {
		out.reply, ok = x.state.Urgent()
	} else {
		out.reply, ok = x.state.Next()
	}
	x.secretsHeld = x.secretsHeld || w != nil && w.secret
	x.rollout.part = x.rollout.part || w != nil && w.own
	switch {
	case ok:
		out.blocks = out.reply.Due || s.unwritten
		s.unwritten = false
		x.sends(&out.reply, urgent, now)
		return out, something, since
	case s.again:
		s.again = false
		return out, lookAgain, since
	}
	s.task = nobody
	x.wake(now)
	if urgent {
		return out, nothing, since // another turn sends the remaining changes
	}
	for l := range x.markedAt {
		x.markedAt[l].Store(0) // the sent responses serve the earlier marks too
	}
	x.took()
	return out, nothing, x.converged()
}

// sends records a response that is about to be sent. The caller holds the lock.
func (x *exchange) sends(reply *delta.Reply, urgent bool, now time.Time) {
	x.sender.due = reply.Due
	if x.state.InFlight(reply.Type) == 1 {
		*x.waitingSince(reply.Type) = now.UnixNano()
	}
	if _, agents := agentType(reply.Type); !agents {
		x.pushed = true
		x.rollout.sent = x.rollout.sent || !urgent && reply.Type != xds.Endpoint
	}
}
