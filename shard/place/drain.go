package place

import "time"

// DrainConfig is the pace at which streams that cannot move by themselves (of stock agents) are closed, so that they come
// back elsewhere. The zero value of a field is its default.
type DrainConfig struct {
	Above float64       // of this replica's share: more than this is uneven; 1.25
	Until float64       // of its share: closing goes on until here; 1.1
	Slack int           // and at least so many streams more than its share; 8
	After time.Duration // it is uneven for so long before a stream is closed; 60 s
	Rate  float64       // streams closed a second; 10
	Part  float64       // but no more than this part of the streams a second; 0.02
	Calm  time.Duration // a leader leads for so long before anything is closed; 30 s
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

// Drain decides how many streams to close. It has no clock; one goroutine calls it.
type Drain struct {
	cfg    DrainConfig
	last   time.Time
	uneven time.Time // since when; zero: it is not
	active bool
	tokens float64
}

// NewDrain makes one that has seen nothing yet.
func NewDrain(cfg DrainConfig) *Drain {
	orElse(&cfg.Above, 1.25)
	orElse(&cfg.Until, 1.1)
	orElse(&cfg.Slack, 8)
	orElse(&cfg.After, time.Minute)
	orElse(&cfg.Rate, 10)
	orElse(&cfg.Part, .02)
	orElse(&cfg.Calm, 30*time.Second)
	return &Drain{cfg: cfg}
}

func orElse[T int | float64 | time.Duration](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

// Step says how many streams to close now. To be called about once a second: what is not used is not saved up.
func (d *Drain) Step(in DrainInput) int {
	elapsed := min(max(in.Now.Sub(d.last), 0), time.Second)
	first := d.last.IsZero()
	d.last = in.Now
	excess := float64(in.Streams) - in.Share
	if in.Share <= 0 || in.Peers == 0 || float64(in.Streams) <= d.cfg.Until*in.Share || excess < 1 {
		d.uneven, d.active, d.tokens = time.Time{}, false, 0
		return 0
	}
	if !d.active {
		if float64(in.Streams) <= d.cfg.Above*in.Share || excess <= float64(d.cfg.Slack) {
			d.uneven = time.Time{}
			return 0
		}
		if d.uneven.IsZero() {
			d.uneven = in.Now
		}
		d.active = in.Now.Sub(d.uneven) >= d.cfg.After
	}
	if !d.active || first || in.Storm || in.Mixed || in.LeaderAge < d.cfg.Calm {
		d.tokens = 0
		return 0
	}
	rate := min(d.cfg.Rate, d.cfg.Part*float64(in.Streams))
	d.tokens += rate * elapsed.Seconds() * (.5 + in.Random)
	n := min(int(d.tokens), in.Movable, int(float64(in.Streams)-d.cfg.Until*in.Share)+1)
	d.tokens = min(d.tokens-float64(n), 1) // what could not be closed is not saved up
	return n
}
