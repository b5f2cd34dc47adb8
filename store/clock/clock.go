// Package clock decides whether this process's clock can be trusted, by comparing it with those of the mesh's other processes: each writes its
// time into etcd and reads the others'; peers, and the API server where there is one, say their time when they are asked. Code that signs
// certificates, ends rotations or prunes what has expired asks this package first (issue 12, item 15).
//
// Owns: clocks/<process>, leased, and clocks/recorded.  Reads: clocks/.  Never: corrects a clock; believes one process more than
// another.
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

// Tolerance is how far a clock may be from the others': what is signed begins 15 minutes in the past (issue.Backdate), and readings may
// be as old as lease.
const Tolerance = 2 * time.Minute

const (
	folder   = "clocks/"
	recorded = folder + "recorded" // a time that has passed for certain; no process has that name, for its key has the folder processes/
	own      = folder + "processes/"
	every    = 30 * time.Second // between two writes of the own time
	lease    = 60 * time.Second // for which that of a process that has ended counts
)

// ErrNotCompared: the others' clocks have not been read since the start.
var ErrNotCompared = errors.New("the clock has not been compared with those of other processes yet")

// Config of a Clock. Store is required.
type Config struct {
	Store *kv.Store
	Name  string // of the process, unique in the mesh; empty where only Look is called
	// Period is how long anything lives at most of which this process, where it is alone, should find out by its own clock that it has
	// ended: after so long a time without a restart the clock needs no others.
	Period time.Duration
	Wall   func() time.Time // what is to be judged; nil: time.Now. Its monotonic reading is not looked at.
	Log    *slog.Logger     // nil: slog's default
}

// Clock is this process's. Safe for concurrent use.
type Clock struct {
	cfg   Config
	start time.Time // with a monotonic reading

	mu       sync.Mutex         // a leaf: guards what follows
	compared chan struct{}      // closed once others is read
	others   map[string]reading // in etcd
	heard    map[string]reading // in answers, see Heard
	passed   reading            // what clocks/recorded said, and when it was read
	done     bool               // compared is closed
	said     bool               // the log has it that the clock is off
	offset   time.Duration      // as the last error of off has it
}

// reading is what another clock said when this process had run for so long.
type reading struct {
	revision int64 // etcd's, of the value
	said     time.Time
	at       time.Duration
}

// then is what that clock says when this process has run for so long.
func (r reading) then(ran time.Duration) time.Time { return r.said.Add(ran - r.at) }

// New is a clock that is not compared yet.
func New(cfg Config) *Clock {
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Clock{cfg: cfg, start: time.Now(), others: map[string]reading{}, heard: map[string]reading{}, compared: make(chan struct{})}
}

// wall is the clock without its monotonic reading, which does not follow when somebody sets it.
func (c *Clock) wall() time.Time { return c.cfg.Wall().Round(0) }

// Off is nil where this clock can be believed: it is alone, or no further than Tolerance from the middle of all. Otherwise it says how
// far it is from them, or wraps ErrNotCompared.
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
	// Whoever logs the error as it changes has one line for as long as the clock stays where it is: what another wrote may be as old as
	// lease.
	if (offset - c.offset).Abs() > lease {
		c.offset = offset
	}
	return fmt.Errorf("the clock of this machine is %s %s the median of the mesh's processes, the API server among them where there is "+
		"one: set it right", c.offset.Round(time.Second), to)
}

// Compared is closed once the others' clocks have been read.
func (c *Clock) Compared() <-chan struct{} { return c.compared }

// Sure is a time that has come for certain, and the newest such: what has ended by it may be destroyed. Where other clocks agree with this
// one that is now. One that is alone may be wrong since its start: there it is what was recorded before, and as much later as this
// process has run, until it has run for a whole Period. An error is that of Off.
func (c *Clock) Sure() (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ran := time.Since(c.start)
	if err := c.off(ran); err != nil {
		return time.Time{}, err
	}
	return sure(c.wall(), c.passed, ran, len(c.readings(ran)) > 0 || ran >= c.cfg.Period), nil
}

// sure is Sure's rule.
func sure(now time.Time, passed reading, ran time.Duration, believed bool) time.Time {
	if least := passed.then(ran); !believed && !passed.said.IsZero() && least.Before(now) {
		return least
	}
	return now
}

// ReadOthers reads the others' clocks once, for a process that ends soon and is none of those compared. Errors are those of reading etcd.
func (c *Clock) ReadOthers(ctx context.Context) error {
	blobs, revision, err := c.cfg.Store.Blobs(ctx, folder, 0)
	if err == nil {
		c.read(kv.Folder{Blobs: blobs, Revision: revision})
	}
	return err
}

// Run writes this clock into etcd and reads the others' until ctx ends. Its error is the context's.
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

// read takes what the clocks say.
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
				continue // of nobody that we know
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

// logOffset logs once that the clock is off, and that it is not any more.
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
