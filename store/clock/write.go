package clock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// recordEvery is the pause between two writes of clocks/recorded. After a restart without other clocks, Sure is behind
// by the downtime plus up to this time.
const recordEvery = 5 * time.Minute

// write keeps this clock's time in etcd until ctx ends.
func (c *Clock) write(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.leased(ctx)
		if ctx.Err() == nil {
			c.cfg.Log.Debug("this process's time cannot be written to etcd; trying again", obs.KeyError, err)
			_ = loop.Pause(ctx, time.Second+rand.N(time.Second))
		}
	}
}

// leased writes this clock's time under one lease, again and again. It returns an error when ctx ends, the lease is
// lost or not granted, or a write fails.
func (c *Clock) leased(ctx context.Context) error {
	taking, cancel := context.WithTimeout(ctx, lease)
	l, err := c.cfg.Store.Lease(taking, lease)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = l.Release(giving) // if this fails, the lease expires by itself
	}()
	select {
	case <-c.compared: // until then Sure fails, and the first record would be late by recordEvery
	case <-l.Lost():
		return kv.ErrLeaseLost
	case <-ctx.Done():
		return ctx.Err()
	}
	for wrote := time.Duration(-recordEvery); ; {
		writing, cancel := context.WithTimeout(ctx, lease)
		_, err := l.Put(writing, own+c.cfg.Name, encode(c.wall()))
		if ran := time.Since(c.start); err == nil && ran-wrote >= recordEvery {
			if err = c.record(writing); err == nil {
				wrote = ran
			}
		}
		cancel()
		if err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-l.Lost():
			return kv.ErrLeaseLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// record writes the result of Sure to clocks/recorded, if it is later than the recorded time. It returns nil without a
// write if this clock is not trusted, or if another process has written since the last read.
func (c *Clock) record(ctx context.Context) error {
	now, err := c.Sure()
	if err != nil {
		return nil // this clock is not trusted
	}
	c.mu.Lock()
	revision, before := c.passed.revision, c.passed.said
	c.mu.Unlock()
	if !now.After(before) {
		return nil
	}
	_, err = c.cfg.Store.ChangeBlobs(ctx, kv.BlobChange{If: map[string]int64{recorded: revision},
		Put: []kv.Blob{{Path: recorded, Raw: encode(now)}}})
	if errors.Is(err, kv.ErrConflict) {
		return nil // another process was faster
	}
	return err
}

// encode formats a time in milliseconds since 1970, in decimal digits.
func encode(t time.Time) []byte { return strconv.AppendInt(nil, t.UnixMilli(), 10) }
