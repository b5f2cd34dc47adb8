package place

import (
	"cmp"
	"math"
	"time"
)

// DrainConfig is the pace at which streams that cannot move by themselves (of stock agents) are closed, so that they come
// back elsewhere. The zero value of a field is its default.
type DrainConfig struct {
	Above float64       // of this replica's share: more than this is uneven; 1.25
	Until float64       // of its share: closing goes on until here; 1.1
	Slack int           // and at least so many streams more than its share; 8
	After time.Duration // it is uneven for so long before a stream is closed; 60 s
	Rate  float64       // streams closed in any second, at most; 10
	Part  float64       // and no more than this part of the streams; 0.02
	Calm  time.Duration // a leader leads for so long before anything is closed; 30 s
	Off   bool          // none is closed: to measure what the loop is worth
}

// DrainInput is what a step sees.
type DrainInput struct {
	Now       time.Time
	Streams   int           // here
	Share     float64       // what should be here: Numbers.Share; 0: not known
	Peers     int           // other replicas that are ready: Placement.Peers
	Movable   int           // streams here that may be closed: they do not follow the ring by themselves
	Storm     bool          // a push reaches many streams, or joins wait for admission
	Mixed     bool          // Numbers.Mixed: in an upgrade a stream that is closed may come back to the version that goes
	LeaderAge time.Duration // Replica.LeaderAge; 0: there is none
	Random    float64       // 0 to 1: the jitter
}

// Drain decides when to close a stream. It has no clock; one goroutine calls it.
type Drain struct {
	cfg    DrainConfig
	uneven time.Time // since when; zero: it is not
	active bool
	next   time.Time // before which none is closed
}

// NewDrain makes one that has seen nothing yet.
func NewDrain(cfg DrainConfig) *Drain {
	cfg.Above = cmp.Or(cfg.Above, 1.25)
	cfg.Until = cmp.Or(cfg.Until, 1.1)
	cfg.Slack = cmp.Or(cfg.Slack, 8)
	cfg.After = cmp.Or(cfg.After, time.Minute)
	cfg.Rate = cmp.Or(cfg.Rate, 10)
	cfg.Part = cmp.Or(cfg.Part, .02)
	cfg.Calm = cmp.Or(cfg.Calm, 30*time.Second)
	return &Drain{cfg: cfg}
}

// look is how often it is looked whether there is anything to close.
const look = time.Second

// Step says whether to close one stream now, and after how long to call again. The decision is for the moment of the call:
// nothing is planned ahead, and nothing that was not closed is saved up.
func (d *Drain) Step(in DrainInput) (closing bool, again time.Duration) {
	excess := float64(in.Streams) - in.Share
	if d.cfg.Off || in.Share <= 0 || in.Peers == 0 || float64(in.Streams) <= d.cfg.Until*in.Share || excess < 1 {
		d.uneven, d.active = time.Time{}, false
		return false, look
	}
	if !d.active {
		if float64(in.Streams) <= d.cfg.Above*in.Share || excess <= float64(d.cfg.Slack) {
			d.uneven = time.Time{}
			return false, look
		}
		if d.uneven.IsZero() {
			d.uneven = in.Now
		}
		d.active = in.Now.Sub(d.uneven) >= d.cfg.After
	}
	if !d.active || in.Storm || in.Mixed || in.LeaderAge < d.cfg.Calm || in.Movable == 0 {
		return false, look
	}
	if wait := d.next.Sub(in.Now); wait > 0 {
		return false, min(wait, look)
	}
	gap := d.gap(in.Streams, in.Random)
	d.next = in.Now.Add(gap)
	return true, min(gap, look)
}

// gap is the time from one closed stream to the next: so long that no second has more of them than it may, and up to half as
// long again by chance, so that those who come back do not come in step. A part of the streams that is less than one is one in
// as many seconds as it takes.
func (d *Drain) gap(streams int, random float64) time.Duration {
	rate := min(d.cfg.Rate, d.cfg.Part*float64(streams))
	if rate > 1 {
		rate = math.Floor(rate)
	}
	return time.Duration(math.Ceil(float64(time.Second) / rate * (1 + random/2)))
}
