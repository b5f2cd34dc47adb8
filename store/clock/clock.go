// Package clock decides whether this process's clock can be trusted, by comparing it with other clocks: those of the
// other processes of the control plane and, if there is one, that of the API server. Each process writes its time into
// etcd, and reads the times of the other processes. The other processes (peers) and the API server also answer requests
// for their time. Code that signs certificates, ends rotations or prunes expired data calls Off or Sure first.
//
// Owns: the keys clocks/processes/<process> (with a lease) and clocks/recorded in etcd.
// Reads: all keys below clocks/.
// Never: corrects a clock; trusts one process more than another.
package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Tolerance bounds the difference between a trusted clock and the median of all clocks. Tolerance is far shorter than
// the 15 minutes by which certificates begin in the past (issue.Backdate). It is longer than lease, the largest age of
// a time in etcd.
const Tolerance = 2 * time.Minute

const (
	folder   = "clocks/"
	recorded = folder + "recorded"   // key of a time that has certainly passed
	own      = folder + "processes/" // prefix of the keys of processes
	every    = 30 * time.Second      // pause between two writes of this process's time
	lease    = 60 * time.Second      // lease of this process's time, and the time for which it counts after a crash
)

// ErrNotCompared means that the Clock has not read the other clocks from etcd since New.
var ErrNotCompared = errors.New("the clock has not been compared with those of other processes yet")

// Config configures a Clock. Store is required.
type Config struct {
	Store *kv.Store
	Name  string // name of the process, unique in the mesh; may be empty if only ReadOthers is called
	// Period is the longest life of anything whose end this process determines by its own clock, such as a certificate.
	// If there are no other clocks, Sure relies on the time recorded in etcd until the process has run for Period. 0
	// means that Sure ignores the recorded time.
	Period time.Duration
	Wall   func() time.Time // the clock to check, whose monotonic reading is ignored; nil: time.Now
	Log    *slog.Logger     // nil: slog's default
}

// Clock is this process's clock with its readings of the other clocks. It is safe for concurrent use.
type Clock struct {
	cfg   Config
	start time.Time // start of this process's life, with a monotonic reading

	mu       sync.Mutex         // leaf mutex; guards the fields below
	compared chan struct{}      // closed when others has been read
	others   map[string]reading // readings from etcd, by process
	heard    map[string]reading // readings from responses, by process (Heard)
	passed   reading            // the value of clocks/recorded
	done     bool               // compared is closed
	said     bool               // the log states that this clock is not trusted
	offset   time.Duration      // offset in the last error of off
}

// reading is the time of another clock at one moment of this process's life.
type reading struct {
	revision int64         // etcd's revision of the value; 0: the reading is from a response
	said     time.Time     // the other clock's time
	at       time.Duration // running time of this process at the reading
}

// then extrapolates the other clock to the moment at which this process has run for the given time.
func (r reading) then(ran time.Duration) time.Time { return r.said.Add(ran - r.at) }

// New returns a Clock that is not compared yet: Off returns ErrNotCompared. It sends no request.
func New(cfg Config) *Clock {
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Clock{cfg: cfg, start: time.Now(), others: map[string]reading{}, heard: map[string]reading{}, compared: make(chan struct{})}
}

// wall returns this clock's time without the monotonic reading, because a monotonic reading ignores adjustments of the
// clock.
func (c *Clock) wall() time.Time { return c.cfg.Wall().Round(0) }

// Off returns nil if this clock can be trusted: it is the only clock, or within Tolerance of the median of all clocks.
// If there are only two clocks, and they differ by more than Tolerance, neither is trusted. The error states the offset
// of this clock, with an inaccuracy of up to a minute. Before the other clocks have been read from etcd, the error is
// ErrNotCompared.
func (c *Clock) Off() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off(time.Since(c.start))
}

func (c *Clock) off(ran time.Duration) error {
	select {
	case <-c.compared:
	default:
		return ErrNotCompared
	}
	now := c.wall()
	var ahead []time.Duration
	for _, r := range c.readings(ran) {
		ahead = append(ahead, r.then(ran).Sub(now))
	}
	low, high := middle(ahead)
	obs.ClockOff.Set(max(-low, high).Seconds())
	if max(-low, high) <= Tolerance {
		return nil
	}
	offset, to := -low, "ahead of"
	if high > offset {
		offset, to = high, "behind"
	}
	// The offset in the error changes only by more than lease, the largest age of a time in etcd. So code that logs
	// each new error writes one line while the clock stays unchanged.
	if (offset - c.offset).Abs() > lease {
		c.offset = offset
	}
	return fmt.Errorf("the clock of this machine is %s %s the median of the clocks of the mesh's processes and of the API server, if "+
		"there is one: correct it", c.offset.Round(time.Second), to)
}

// Compared returns a channel that is closed once the other clocks have been read from etcd for the first time.
func (c *Clock) Compared() <-chan struct{} { return c.compared }

// Sure returns a time that has certainly passed, so data that ended before that time may be deleted. If there are other
// clocks, the result is the present time. A process without other clocks may have started with a wrong clock. Until it
// has run for Config.Period, the result is the time recorded in etcd plus the running time since it was read, but at
// most the present time. If no time is recorded, the result is the present time. Errors are those of Off.
func (c *Clock) Sure() (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ran := time.Since(c.start)
	if err := c.off(ran); err != nil {
		return time.Time{}, err
	}
	return sure(c.wall(), c.passed, ran, len(c.readings(ran)) > 0 || ran >= c.cfg.Period), nil
}

// sure computes the result of Sure. The parameter believed means that this clock is trusted without the recorded time.
func sure(now time.Time, passed reading, ran time.Duration, believed bool) time.Time {
	if least := passed.then(ran); !believed && !passed.said.IsZero() && least.Before(now) {
		return least
	}
	return now
}

// ReadOthers reads the other clocks from etcd once, for a short-lived process that does not call Run. Errors are those
// of kv.Store.Blobs.
func (c *Clock) ReadOthers(ctx context.Context) error {
	blobs, revision, err := c.cfg.Store.Blobs(ctx, folder, 0)
	if err == nil {
		c.read(kv.Folder{Blobs: blobs, Revision: revision})
	}
	return err
}

// Run writes this clock's time into etcd, and reads the other clocks from etcd. It blocks until ctx ends, and returns
// the context's error. It returns the error of kv.Store.Follow at once, if there is one. While etcd does not answer,
// writes are retried.
func (c *Clock) Run(ctx context.Context) error {
	folders, err := c.cfg.Store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { c.write(ctx) })
	for {
		select {
		case f, open := <-folders:
			if open {
				c.read(f)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read applies the times below clocks/. A value whose revision has not changed keeps its earlier reading.
func (c *Clock) read(f kv.Folder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ran, now := time.Since(c.start), map[string]reading{}
	for _, blob := range f.Blobs {
		name, process := strings.CutPrefix(blob.Path, own)
		last := c.others[name]
		if !process {
			name, last = recorded, c.passed
		}
		if name == c.cfg.Name {
			continue
		}
		if last.revision != blob.Revision {
			ms, err := strconv.ParseInt(string(blob.Raw), 10, 64)
			if err != nil {
				continue // the value has an unknown format
			}
			last = reading{blob.Revision, time.UnixMilli(ms), ran}
		}
		if process {
			now[name] = last
		} else if c.passed.said.IsZero() || last.then(ran).After(c.passed.then(ran)) {
			c.passed = last
		} else {
			c.passed.revision = last.revision // so that the next call of record replaces this value
		}
	}
	if c.others = now; !c.done {
		c.done = true
		close(c.compared)
	}
	c.logOffset(ran)
}

// logOffset logs once when this clock is no longer trusted, and once when it is trusted again.
func (c *Clock) logOffset(ran time.Duration) {
	err := c.off(ran)
	switch {
	case err == nil && c.said:
		c.cfg.Log.Info("this machine's clock agrees with the other processes' clocks again")
		c.said = false
	case err != nil && !c.said:
		c.said = true
		c.cfg.Log.Error("this machine's clock is not trusted: this process signs nothing, ends no rotation and prunes nothing", obs.KeyError, err)
	}
}
