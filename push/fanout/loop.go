package fanout

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/watchdog"
)

// pressEvery is the time between two measurements of the run queue. The measurements are made while endpoints change
// and configuration is being sent or waits.
const pressEvery = 25 * time.Millisecond

// Loop runs a Queue: workers call the send functions of the streams that get a turn. Its methods, except Run, may be
// called from any goroutine.
type Loop struct {
	budget  Budget
	workers int
	log     *slog.Logger
	waited  func() time.Duration // returns the 90th percentile of goroutines' waits for a processor since its last call

	mu    sync.Mutex // guards inbox; no other lock is acquired while mu is held
	inbox []*Stream  // each stream at most once
	wake  chan struct{}

	waiting [NumLanes]atomic.Int64
}

// Stream represents one stream of a Loop. Its methods may be called from any goroutine and never block.
type Stream struct {
	loop      *Loop
	namespace string
	first     bool
	send      func(urgent bool, plan int64) int

	inbox atomic.Bool // the stream is in the inbox
	joins atomic.Bool // this field and all below are events that the loop has not processed yet
	marks atomic.Uint32
	done  atomic.Bool
	sent  atomic.Int64
	acked atomic.Int64
	left  atomic.Bool
	plan  atomic.Int64 // newest plan of the calls of Try; 0: no call
	tried [Refuse - Accept + 1]atomic.Pointer[outcome]
}

// outcome is the result that a stream reports for a plan. The field by is the identity of a client that refused.
type outcome struct {
	plan int64
	by   string
}

// New returns a Loop, which grants turns only while Run runs. Numbers of 0 or less in b mean the defaults. The
// parameter workers is the number of goroutines that send. If workers is 0 or less, there is one goroutine for each
// processor (GOMAXPROCS). There are never more workers than Budget.Streams. A nil log means slog.Default().
func New(b Budget, workers int, log *slog.Logger) *Loop {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	b = NewQueue[int](b).budget
	var queue obs.RunQueue
	return &Loop{budget: b, workers: min(workers, b.Streams), log: log, wake: make(chan struct{}, 1),
		waited: func() time.Duration { return queue.Since(.9) }}
}

// Budget returns the budget of the Loop, with the defaults instead of numbers of 0 or less.
func (l *Loop) Budget() Budget { return l.budget }

// Join adds a stream of a namespace. The parameter first states that the stream belongs to a gateway. Streams of
// gateways precede others. One worker at a time calls the function send, in the stream's turn. The function send must
// send everything that may be sent now, and return the number of bytes sent. If its argument urgent is set, it must
// send only urgent changes. The function must not block. Its argument plan is the number of the newest plan that may be
// sent on the stream from this turn on. A plan of 0 means that the previous number still holds. Join may be called
// before Run.
func (l *Loop) Join(namespace string, first bool, send func(urgent bool, plan int64) int) *Stream {
	s := &Stream{loop: l, namespace: namespace, first: first, send: send}
	s.joins.Store(true)
	s.notify()
	return s
}

// Mark requests a turn for the stream in the lane l, because there may be something to send. The lane must be below
// NumLanes. Several marks before the turn cause one turn.
func (s *Stream) Mark(l Lane) {
	s.marks.Or(1 << l)
	s.notify()
}

// Try requests a turn in the lane Config for a plan that was not sent on the stream yet. Plans have rising numbers
// above 0. The turn may be for a newer plan. The stream's function (see Join) gets the number of the turn's plan. After
// the turn, the caller must call Accepted, Skipped or Refused with the plan of the turn.
func (s *Stream) Try(plan int64) {
	for {
		old := s.plan.Load()
		if plan <= old || s.plan.CompareAndSwap(old, plan) {
			break
		}
	}
	s.Mark(Config)
}

// Accepted reports that the client has acknowledged everything that was sent of a plan.
func (s *Stream) Accepted(plan int64) { s.report(Accept, outcome{plan: plan}) }

// Skipped reports that nothing of a plan was sent, or that the client's ACK proves nothing about other clients.
func (s *Stream) Skipped(plan int64) { s.report(Skip, outcome{plan: plan}) }

// Refused reports that the client refused a part of a plan. The parameter by is the client's identity.
func (s *Stream) Refused(plan int64, by string) { s.report(Refuse, outcome{plan, by}) }

// report stores an outcome for the loop.
func (s *Stream) report(op Op, v outcome) {
	s.tried[op-Accept].Store(&v)
	s.notify()
}

// Sent counts bytes that the caller sent after the stream's function (see Join) had returned. They count against the
// budget from the end of the stream's next turn on.
func (s *Stream) Sent(bytes int) { s.sent.Add(int64(bytes)) }

// Acked reports bytes that the client has acknowledged, and releases them from the budget.
func (s *Stream) Acked(bytes int) {
	s.acked.Add(int64(bytes))
	s.notify()
}

// Leave removes the stream, and releases its bytes from the budget. The stream's function may still be called for a
// turn that was granted before the loop processes this call.
func (s *Stream) Leave() {
	s.left.Store(true)
	s.notify()
}

// notify adds the stream to the inbox of the loop and wakes the loop. It does nothing if the stream is in the inbox
// already. It never blocks.
func (s *Stream) notify() {
	if s.inbox.Swap(true) {
		return
	}
	l := s.loop
	l.mu.Lock()
	l.inbox = append(l.inbox, s)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Waiting returns the number of streams that waited in a lane when the loop had last processed events, for a gauge. The
// lane must be below NumLanes.
func (l *Loop) Waiting(lane Lane) int { return int(l.waiting[lane].Load()) }

// Run grants turns until ctx ends, waits until the granted turns are over, and returns the error of ctx. It must not be
// called twice.
func (l *Loop) Run(ctx context.Context) error {
	turns := make(chan Grant[*Stream], l.budget.Streams) // has room for the turns of all streams in the Queue
	var workers sync.WaitGroup
	for range l.workers {
		workers.Go(func() {
			watched := watchdog.New(l.log, "fan-out: a stream's turn")
			for g := range turns {
				s := g.Stream
				watched.Call(func() { s.sent.Add(int64(s.send(g.Urgent, g.Plan))) })
				s.done.Store(true)
				s.notify()
			}
		})
	}
	defer workers.Wait()
	defer close(turns)
	q := NewQueue[*Stream](l.budget)
	timer, press := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer timer.Stop()
	defer press.Stop()
	pressing := false
	for {
		step := func(e Event[*Stream]) {
			for _, g := range q.Step(time.Now(), e) {
				turns <- g
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			step(Event[*Stream]{Op: Tick})
		case <-press.C:
			step(Event[*Stream]{Op: Press, Wait: l.waited()})
			if pressing = q.Pressing(time.Now()); pressing {
				press.Reset(pressEvery)
			}
		case <-l.wake:
			for _, s := range l.take() {
				s.events(step)
			}
		}
		for lane := range l.waiting {
			l.waiting[lane].Store(int64(q.Waiting(Lane(lane))))
		}
		if !pressing && q.Pressing(time.Now()) {
			l.waited() // the first measurement begins here
			press.Reset(pressEvery)
			pressing = true
		}
		if at, ok := q.Next(); ok {
			timer.Reset(time.Until(at))
		}
	}
}

// take empties the inbox and returns the streams that were in it.
func (l *Loop) take() []*Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.inbox
	l.inbox = nil
	return taken
}

// events passes to step everything that was reported for the stream since the previous call of events.
func (s *Stream) events(step func(Event[*Stream])) {
	s.inbox.Store(false) // before the events are read, so that later events notify again
	if s.joins.Swap(false) {
		step(Event[*Stream]{Op: Join, Stream: s, Namespace: s.namespace, First: s.first})
	}
	marks := s.marks.Swap(0)
	for lane := range NumLanes {
		if marks&(1<<lane) != 0 {
			e := Event[*Stream]{Op: Mark, Stream: s, Lane: lane}
			if lane == Config {
				e.Plan = s.plan.Swap(0)
			}
			step(e)
		}
	}
	if s.done.Swap(false) {
		step(Event[*Stream]{Op: Done, Stream: s, Bytes: int(s.sent.Swap(0))})
	}
	for op := Refuse; op >= Accept; op-- {
		if v := s.tried[op-Accept].Swap(nil); v != nil {
			step(Event[*Stream]{Op: op, Stream: s, Plan: v.plan, By: v.by})
		}
	}
	if n := s.acked.Swap(0); n > 0 {
		step(Event[*Stream]{Op: Ack, Stream: s, Bytes: int(n)})
	}
	if s.left.Swap(false) {
		step(Event[*Stream]{Op: Leave, Stream: s})
	}
}
