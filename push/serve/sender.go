package serve

import (
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/xds"
)

// sender says who sends on a stream. One goroutine does at a time: it begins with a turn, asks for a response and writes it until there is
// none, and then stops. A turn that comes meanwhile is added to its task.
type sender struct {
	task      task
	again     bool // a turn came: what was looked up before (offers, withheld) may be old
	due       bool // what is being written is outside the credit: the client has to read before it can acknowledge
	unwritten bool // an answer went out that gRPC may not have written yet, so that the next response may block
}

// task is what the goroutine that sends is to send.
type task uint8

const (
	nobody  task = iota // there is no such goroutine
	urgents             // what does not wait for configuration
	all                 // everything
)

// outgoing is one response: to a question, or of a type that is subscribed to.
type outgoing struct {
	reply  delta.Reply
	answer *answer
	blocks bool // to write it may take until the client reads
}

func (o *outgoing) what() string {
	if o.answer != nil {
		return o.answer.url
	}
	return typeName(o.reply.Type, o.reply.URL)
}

// begin is the event that the stream has a turn. plan is the newest plan that it may be sent from now on; 0: as before. true: the caller is
// the one who sends from now on, and asks next; false: somebody else is, and takes this turn over, or the stream has ended.
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

// stop is the event that the goroutine that sends cannot go on.
func (x *exchange) stop() { x.locked(func() { x.sender.task, x.sender.due = nobody, false }) }

// sending says whether somebody sends, or nobody will any more.
func (x *exchange) sending() (is bool) {
	x.locked(func() { is = x.sender.task != nobody || x.closed })
	return is
}

// found is what next has found.
type found uint8

const (
	nothing   found = iota // the caller does not send any more
	something              // it is to be written
	lookAgain              // a turn came since the caller looked: it looks again, and asks again
)

// next is the next response. since is when the view moved, where the client turns out to have all of that acknowledged. w and offered are
// what the caller looked up before.
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
		return out, nothing, since // the turn for all is to come
	}
	for l := range x.markedAt {
		x.markedAt[l].Store(0) // what a mark meant while somebody sent has gone out
	}
	x.took()
	return out, nothing, x.converged()
}

// sends takes note of a response that goes out. Called with the lock held.
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
