package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The rules by which an embedded database is kept small. Compaction makes room inside the file, defragmentation gives it
// back; it blocks the server for about a second per 100 MiB that are in use, so it waits until it frees as much again.
const (
	maintainEvery = time.Minute
	defragSlack   = 32 << 20
)

// Size is what a database takes, in bytes.
type Size struct {
	File  int64 // on disk
	InUse int64 // of it, by history that was not compacted and by what is current
	Full  bool  // etcd stopped writing: its quota is used up
}

// Size asks the first endpoint.
func (s *Store) Size(ctx context.Context) (Size, error) {
	status, err := s.client.Status(ctx, s.client.Endpoints()[0])
	if err != nil {
		return Size{}, fmt.Errorf("size of the database: %w", err)
	}
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return Size{}, fmt.Errorf("alarms of the database: %w", err)
	}
	size := Size{File: status.DbSize, InUse: status.DbSizeInUse}
	for _, alarm := range alarms.Alarms {
		size.Full = size.Full || alarm.Alarm == pb.AlarmType_NOSPACE
	}
	return size, nil
}

// Compact drops all history before a revision, and returns when that is done. That it was done before is no error.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	_, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	return nil
}

// Defragment gives the free room of the database files back, one endpoint after the other; each is blocked meanwhile.
func (s *Store) Defragment(ctx context.Context) error {
	for _, endpoint := range s.client.Endpoints() {
		if _, err := s.client.Defragment(ctx, endpoint); err != nil {
			return fmt.Errorf("defragment %s: %w", endpoint, err)
		}
	}
	return nil
}

// maintain defragments when it pays, and gets an etcd out of its alarm where history was all that filled it.
func (s *Store) maintain(ctx context.Context) error {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.server.etcd.Err():
			return fmt.Errorf("embedded etcd: %w", err)
		case <-s.server.etcd.Server.StopNotify():
			return errors.New("embedded etcd stopped")
		case <-tick.C:
			if err := s.Maintain(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("maintenance of the embedded etcd failed", slog.Any("error", err))
			}
		}
	}
}

// Maintain does one round: where etcd stopped writing, all history is compacted, the file is shrunk and the alarm taken
// back; else the file is shrunk where more than half of it (and 32 MiB) is free. Run does it every minute.
func (s *Store) Maintain(ctx context.Context) error {
	size, err := s.Size(ctx)
	if err != nil {
		return err
	}
	if size.Full {
		stat, err := s.Stat(ctx)
		if err != nil {
			return err
		}
		if err := s.Compact(ctx, stat.Revision); err != nil {
			return err
		}
	} else if size.File-size.InUse < max(size.InUse, defragSlack) {
		return nil
	}
	if err := s.Defragment(ctx); err != nil {
		return err
	}
	if size.Full {
		if _, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
			return fmt.Errorf("take back the alarm: %w", err)
		}
	}
	s.log.Info("embedded etcd shrunk", slog.Int64("bytes_before", size.File), slog.Int64("bytes_in_use", size.InUse), slog.Bool("was_full", size.Full))
	return nil
}
