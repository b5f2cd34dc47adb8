package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"navarch.io/navarch/store/loop"
)

// etcd ends its process if a write to its disk fails, and it already writes while it starts. Therefore this package
// raises etcd's alarm NOSPACE before the disk is full. While the alarm is raised, etcd refuses writes (kv.ErrFull), but
// serves reads.
const (
	// Least is the free space that etcd needs to start and to write, in bytes.
	Least = 64 << 20
	// enough is the free space from which writes are permitted again, in bytes. The distance to Least prevents a change
	// every second.
	enough = Least + Least/2
	// segment is the size of the files of etcd's log, in bytes. etcd always allocates the next file in advance. With
	// etcd's default of 64 MB, that file would occupy all of Least.
	segment = 16 << 20

	lookEvery = time.Second // interval of the checks
)

func init() { wal.SegmentSizeBytes = segment }

// Room returns the reason for which etcd does not write to its disk, or is not started. The result is empty if there is
// space.
func (srv *Server) Room() string {
	if why := srv.room.Load(); why != nil {
		return *why
	}
	return ""
}

// hasRoom reports whether the disk has at least this number of bytes free. If not, it stores the reason for Room, and
// logs the reason unless there was one already. If the free space cannot be read, it counts as enough.
func (srv *Server) hasRoom(least uint64) bool {
	free, err := srv.cfg.Free(srv.dir)
	if err != nil || free >= least {
		return true
	}
	what := "etcd writes nothing"
	if srv.etcd == nil {
		what = "etcd is not started, and the state that was read before is served"
	}
	why := fmt.Sprintf("the disk of %s has %d MiB free: %s until there are %d MiB", srv.dir, free>>20, what, enough>>20)
	if srv.room.Swap(&why) == nil {
		srv.log.Error(why)
	}
	return false
}

// begun returns the running etcd. If etcd was not started because the disk had too little space, begun waits for space
// and starts etcd. If an alarm is left from an earlier process, it performs maintenance, which clears the alarm. Errors
// are those of etcd and of ctx.
func (srv *Server) begun(ctx context.Context) (*embed.Etcd, error) {
	if srv.Room() != "" {
		for !srv.hasRoom(enough) {
			if err := loop.Pause(ctx, lookEvery); err != nil {
				return nil, err
			}
		}
		if err := srv.start(); err != nil {
			return nil, fmt.Errorf("start etcd in %s: %w", srv.dir, err)
		}
		srv.room.Store(nil)
		srv.log.Info("the disk has room again: etcd is started")
	}
	srv.mu.Lock()
	etcd := srv.etcd
	srv.mu.Unlock()
	if len(etcd.Server.Alarms()) > 0 { // left from a process whose disk was full
		srv.maintain(ctx)
	}
	return etcd, nil
}

// checkRoom raises etcd's alarm, which refuses writes, when the disk has too little space, and clears it when there is
// enough.
func (srv *Server) checkRoom(ctx context.Context) {
	full := srv.Room() != ""
	switch {
	case !full && !srv.hasRoom(Least):
		member := uint64(srv.etcd.Server.MemberID())
		_, err := srv.etcd.Server.Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: etcdserverpb.AlarmType_NOSPACE})
		if err != nil {
			srv.room.Store(nil) // the next check tries again
			srv.log.Warn("etcd's alarm for its full disk cannot be raised; trying again", slog.Any("error", err))
		}
	case full && srv.hasRoom(enough):
		srv.room.Store(nil)
		srv.log.Info("the disk has room again: etcd writes")
		srv.maintain(ctx)
	}
}
