// Package clock decides whether this process's clock can be trusted, by comparing it with the clocks of the mesh's
// other processes. Each process writes its time into etcd and reads the others' times. Peers, and the API server if
// there is one, also answer requests for their time. Code that signs certificates, ends rotations or prunes expired
// data asks this package first.
//
// Owns: clocks/<process>, leased, and clocks/recorded. Reads: clocks/. Never: corrects a clock; trusts one process more
// than another.
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

// Tolerance bounds the difference between a clock and the others. Certificates begin 15 minutes in the past
// (issue.Backdate), and readings may be as old as lease.
const Tolerance = 2 * time.Minute

const (
	folder   = "clocks/"
	recorded = folder + "recorded" // a time that has certainly passed; keys of processes are below processes/
	own      = folder + "processes/"
	every    = 30 * time.Second // between two writes of the own time
	lease    = 60 * time.Second // of the own time: so long the time of a process that ended still counts
)

// ErrNotCompared means that the other clocks have not been read since the start.
var ErrNotCompared = errors.New("the clock has not been compared with those of other processes yet")

// Config configures a Clock. Store is required.
type Config struct {
	Store *kv.Store
	Name  string // of the process, unique in the mesh; empty if only ReadOthers is called
	// Period is the longest life of anything whose end this process determines by its own clock. A process without other
	// clocks trusts its own after it has run for a Period.
	Period time.Duration
	Wall   func() time.Time // the clock to check; nil: time.Now. Its monotonic reading is ignored
	Log    *slog.Logger     // nil: slog's default
}

// Clock is this process's clock with its readings of the others. It is safe for concurrent use.
type Clock struct {
	cfg   Config
	start time.Time // with a monotonic reading

	mu       sync.Mutex         // a leaf: guards what follows
	compared chan struct{}      // closed once others is read
	others   map[string]reading // readings from etcd, by process
	heard    map[string]reading // readings from responses, by process (Heard)
	passed   reading            // the value of clocks/recorded
	done     bool               // compared is closed
	said     bool               // the log states that the clock is off
	offset   time.Duration      // offset in the last error of off
}

// reading is the time of another clock at one moment of this process's life.
type reading struct {
	revision int64 // etcd's, of the value
	said     time.Time
	at       time.Duration // how long this process had run
}

// then extrapolates that clock to the moment at which this process has run for ran.
func (r reading) then(ran time.Duration) time.Time { return r.said.Add(ran - r.at) }

// New returns a Clock that is not compared yet.
func New(cfg Config) *Clock {
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Clock{cfg: cfg, start: time.Now(), others: map[string]reading{}, heard: map[string]reading{}, compared: make(chan struct{})}
}

// wall returns the time without its monotonic reading, which ignores adjustments of the clock.
func (c *Clock) wall() time.Time { return c.cfg.Wall().Round(0) }

// Off returns nil if this clock can be trusted: it is the only one, or within Tolerance of the median of all clocks.
// Otherwise the error states the offset, or is ErrNotCompared.
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
	// The offset in the error changes only by more than lease, the age of readings. So code that logs each new error
	// writes one line while the clock stays as it is.
	if (offset - c.offset).Abs() > lease {
		c.offset = offset
	}
	return fmt.Errorf("the clock of this machine is %s %s the median of the mesh's processes, the API server among them where there is "+
		"one: set it right", c.offset.Round(time.Second), to)
}

// Compared returns a channel that is closed once the other clocks have been read.
func (c *Clock) Compared() <-chan struct{} { return c.compared }

// Sure returns the newest time that has certainly passed; data that ended before it may be destroyed. If other clocks
// agree, it is the present. A process without other clocks may have started with a wrong clock. Until it has run for a
// Period, it returns the recorded time plus its own running time. Errors are those of Off.
func (c *Clock) Sure() (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ran := time.Since(c.start)
	if err := c.off(ran); err != nil {
		return time.Time{}, err
	}
	return sure(c.wall(), c.passed, ran, len(c.readings(ran)) > 0 || ran >= c.cfg.Period), nil
}

// sure computes the result of Sure.
func sure(now time.Time, passed reading, ran time.Duration, believed bool) time.Time {
	if least := passed.then(ran); !believed && !passed.said.IsZero() && least.Before(now) {
		return least
	}
	return now
}

// ReadOthers reads the other clocks once, for a short-lived process that does not write its own. Errors are etcd's.
func (c *Clock) ReadOthers(ctx context.Context) error {
	blobs, revision, err := c.cfg.Store.Blobs(ctx, folder, 0)
	if err == nil {
		c.read(kv.Folder{Blobs: blobs, Revision: revision})
	}
	return err
}

// Run writes this clock into etcd and reads the others until ctx ends. The error is the context's.
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

// read stores the times in clocks/.
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
				continue // the key is of an unknown format
			}
			last = reading{blob.Revision, time.UnixMilli(ms), ran}
		}
		if process {
			now[name] = last
		} else if c.passed.said.IsZero() || last.then(ran).After(c.passed.then(ran)) {
			c.passed = last
		}
	}
	if c.others = now; !c.done {
		c.done = true
		close(c.compared)
	}
	c.logOffset(ran)
}

// logOffset logs once when the clock becomes off, and once when it is right again.
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
