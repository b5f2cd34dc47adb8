package place

import (
	"cmp"
	"math"
	"time"
)

// DrainConfig configures when and how fast streams of stock agents are closed. Stock agents (those of Istio) cannot
// move a stream. So the stream is closed, and the client reconnects to another replica. A zero field means its default.
type DrainConfig struct {
	Above float64       // this replica is uneven above this multiple of its share, if Slack is exceeded too; 0: 1.25
	Until float64       // multiple of the share down to which closing continues; 0: 1.1
	Slack int           // streams above the share that do not make this replica uneven; 0: 8
	After time.Duration // time for which this replica is uneven before a stream is closed; 0: 60 s
	Rate  float64       // closed streams per second, at most; 0: 10
	Part  float64       // closed fraction of this replica's streams per second, at most; 0: 0.02
	Calm  time.Duration // streams are closed only if LeaderAge is at least this long; 0: 30 s
	Off   bool          // no stream is closed, to measure the effect of the loop
}

// DrainInput is the input of one step.
type DrainInput struct {
	Now       time.Time
	Streams   int           // of this replica
	Share     float64       // target number of streams of this replica (Numbers.Share); 0: unknown, so no stream is closed
	Peers     int           // other ready replicas (Placement.Peers)
	Movable   int           // streams of stock agents at this replica, which do not follow the ring by themselves
	Storm     bool          // many streams wait for a push, or joins wait for admission: no stream is closed
	Mixed     bool          // Numbers.Mixed: no stream is closed, since it may come back to the old version
	LeaderAge time.Duration // Replica.LeaderAge, or the time since an outage of etcd if that is shorter; 0: no leader
	Random    float64       // 0 to 1, for the jitter
}

// Drain decides when to close a stream, so that all replicas have even shares of the streams. It has no clock. One
// goroutine calls it.
type Drain struct {
	cfg    DrainConfig
	uneven time.Time // since when the replica is uneven; zero: it is even
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

// Step decides whether to close one stream now. again is the time until the next call of Step, at most one second. A
// closing that is permitted but not needed is not saved for later.
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
