package place

import (
	"cmp"
	"math"
	"time"
)

// DrainConfig configures when and how fast a replica closes streams of stock agents. Stock agents (the agents of Istio)
// cannot move a stream. When their stream is closed, they reconnect, usually to another replica. A zero field means its
// default.
type DrainConfig struct {
	// Above is a multiple of the replica's share of the streams. The replica is uneven (has too many streams) if its
	// streams exceed Above times the share, and also exceed the share by more than Slack. The default is 1.25.
	Above float64
	Until float64       // multiple of the share down to which closing continues; default 1.1
	Slack int           // number of streams above the share that do not make the replica uneven; default 8
	After time.Duration // time for which the replica must be uneven before it closes streams; default 60 s
	Rate  float64       // largest number of streams to close per second; default 10
	Part  float64       // largest fraction of the replica's streams to close per second; default 0.02
	Calm  time.Duration // streams are closed only if DrainInput.LeaderAge is at least this long; default 30 s
	Off   bool          // no stream is closed, to measure the effect of Drain
}

// DrainInput is the input of one step.
type DrainInput struct {
	Now       time.Time
	Streams   int           // streams of this replica
	Share     float64       // target number of streams of this replica (Numbers.Share); 0: unknown, nothing is closed
	Peers     int           // other ready replicas (Placement.Peers)
	Movable   int           // streams of stock agents at this replica; only these can be closed
	Storm     bool          // many streams wait for a push, or for admission: no stream is closed
	Mixed     bool          // Numbers.Mixed: no stream is closed, since its client may reach an older replica
	LeaderAge time.Duration // the shorter of Replica.LeaderAge and the time since an outage of etcd; 0: no leader
	Random    float64       // random number from 0 to 1, for the time between two closings
}

// Drain decides when to close a stream, so that all replicas have even shares of the streams. It reads no clock
// (DrainInput.Now). Only one goroutine may call it.
type Drain struct {
	cfg    DrainConfig
	uneven time.Time // when the replica became uneven; zero: it is even
	active bool      // the replica was uneven for DrainConfig.After: closing continues down to Until
	next   time.Time // earliest time of the next closing
}

// NewDrain returns a Drain without history.
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

// drainEvery is the longest interval between two steps.
const drainEvery = time.Second

// Step decides whether to close one stream now (closing). The result named again is the time until the next call of
// Step, at most one second. A late call of Step permits no additional closings.
func (d *Drain) Step(in DrainInput) (closing bool, again time.Duration) {
	excess := float64(in.Streams) - in.Share
	if d.cfg.Off || in.Share <= 0 || in.Peers == 0 || float64(in.Streams) <= d.cfg.Until*in.Share || excess < 1 {
		d.uneven, d.active = time.Time{}, false
		return false, drainEvery
	}
	if !d.active {
		if float64(in.Streams) <= d.cfg.Above*in.Share || excess <= float64(d.cfg.Slack) {
			d.uneven = time.Time{}
			return false, drainEvery
		}
		if d.uneven.IsZero() {
			d.uneven = in.Now
		}
		d.active = in.Now.Sub(d.uneven) >= d.cfg.After
	}
	if !d.active || in.Storm || in.Mixed || in.LeaderAge < d.cfg.Calm || in.Movable == 0 {
		return false, drainEvery
	}
	if wait := d.next.Sub(in.Now); wait > 0 {
		return false, min(wait, drainEvery)
	}
	gap := d.gap(in.Streams, in.Random)
	d.next = in.Now.Add(gap)
	return true, min(gap, drainEvery)
}

// gap returns the time between two closings. No second has more closings than permitted. Up to half of the gap is added
// at random, so that the clients do not reconnect at a fixed rhythm. A rate below 1 means one closing in several
// seconds.
func (d *Drain) gap(streams int, random float64) time.Duration {
	rate := min(d.cfg.Rate, d.cfg.Part*float64(streams))
	if rate > 1 {
		rate = math.Floor(rate)
	}
	return time.Duration(math.Ceil(float64(time.Second) / rate * (1 + random/2)))
}
