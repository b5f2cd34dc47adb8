package fanout

import "time"

// charge counts bytes that were sent on a stream against the budget. It leaves out bytes that the stream's client has
// acknowledged already.
func (q *Queue[S]) charge(s *entry[S], bytes int, now time.Time) {
	early := min(bytes, s.early)
	s.early -= early
	if bytes -= early; bytes <= 0 {
		return
	}
	if s.charge == nil {
		s.since = now
		s.charge = q.charged.PushBack(s)
	}
	s.unacked += bytes
	q.bytes += bytes
}

// ack releases acknowledged bytes of a stream from the budget. A client may acknowledge bytes before charge is called
// for them. The field early counts such bytes, and charge subtracts them.
func (q *Queue[S]) ack(s *entry[S], bytes int) {
	forgiven := min(bytes, s.forgiven)
	s.forgiven -= forgiven
	charged := min(bytes-forgiven, s.unacked)
	q.release(s, charged)
	s.early += bytes - forgiven - charged
}

// release subtracts bytes from the charged bytes of a stream and from the queue's total.
func (q *Queue[S]) release(s *entry[S], bytes int) {
	bytes = min(bytes, s.unacked)
	s.unacked -= bytes
	q.bytes -= bytes
	if s.unacked == 0 && s.charge != nil {
		q.charged.Remove(s.charge)
		s.charge = nil
	}
}

// expire releases all charged bytes of each stream whose oldest charge is at least Budget.Slow old. So slow clients do
// not delay others. expire also ends the streams' places in the concurrency window, which bounds the writes of
// configuration (window.go).
func (q *Queue[S]) expire(now time.Time) {
	for front := q.charged.Front(); front != nil; front = q.charged.Front() {
		s := front.Value.(*entry[S])
		if now.Sub(s.since) < q.budget.Slow {
			return
		}
		s.forgiven += s.unacked
		q.release(s, s.unacked)
		q.window.slots.leave(s)
	}
}
