package main

import (
	"context"
	"errors"
	"time"

	"navarch.io/navarch/shard/level"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// level reads the level of the stored configuration at the start of a term, and passes the level to i.loop, which
// writes the configuration. The level is the version of the format that all replicas can read (shard/level). Failed
// reads are logged and repeated. The error reports that ctx has ended.
func (i *ingester) level(ctx context.Context) (level.Current, error) {
	for {
		current, err := level.Read(ctx, i.store)
		if err == nil {
			i.use(current.First(model.Level))
			return current, nil
		}
		i.log.Warn("the level of the stored configuration cannot be read, trying again", obs.KeyError, err)
		if err := loop.Pause(ctx, time.Second); err != nil {
			return current, err
		}
	}
}

func (i *ingester) use(use level.Use) {
	i.loop.Level(ingest.Levelled{Level: use.Level, Below: use.Below})
}

// keepLevel raises and lowers the level of the stored configuration while this process leads.
func (i *ingester) keepLevel(ctx context.Context, epoch kv.Epoch, current level.Current) {
	for ctx.Err() == nil {
		err := level.Lead(ctx, epoch, level.Config{Store: i.store,
			Reads: model.Level, Current: current, Use: i.use, Used: i.loop.Stored, Log: i.log})
		if ctx.Err() != nil || errors.Is(err, kv.ErrDeposed) {
			return // the election reports this, too
		}
		i.log.Warn("the level of the stored configuration is not kept, trying again", obs.KeyError, err)
		if err = loop.Pause(ctx, time.Second); err == nil {
			current, err = i.level(ctx)
		}
		if err != nil {
			return
		}
	}
}
