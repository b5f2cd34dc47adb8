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

// recordEvery is how often what is sure is recorded: a process that is alone waits for so much longer after a restart.
const recordEvery = 5 * time.Minute

// write keeps this clock in etcd until ctx ends.
func (c *Clock) write(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.leased(ctx)
		if ctx.Err() == nil {
			c.cfg.Log.Debug("this process's clock is not in etcd, trying again", obs.KeyError, err)
			_ = loop.Pause(ctx, time.Second+rand.N(time.Second))
		}
	}
}

// leased writes under one lease; the error says why that ended.
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
		_ = l.Release(giving) // or it ends by itself
	}()
	select {
	case <-c.compared: // or the first record would wait for recordEvery: nothing is sure before
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

// record writes what is sure, where that is later than what is recorded.
func (c *Clock) record(ctx context.Context) error {
	now, err := c.Sure()
	if err != nil {
		return nil // it is not this clock that knows
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
		return nil // another did
	}
	return err
}

func encode(t time.Time) []byte { return strconv.AppendInt(nil, t.UnixMilli(), 10) }
