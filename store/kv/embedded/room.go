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

// etcd ends its process where a write to its disk fails, and a start writes. So writing ends before the disk is full,
// by etcd's own alarm: what is put is refused (kv.ErrFull), and reading goes on.
const (
	// Least is the number of bytes that have to be free on the disk for etcd to start, and to write.
	Least = 64 << 20
	// enough is the number from which it writes again: room that comes and goes does not have it change its mind
	// each second.
	enough = Least + Least/2
	// segment is the size of the files of etcd's log, the next of which is always laid out before it is needed: one of
	// etcd's own 64 MB would take all of Least.
	segment = 16 << 20

	lookEvery = time.Second
)

func init() { wal.SegmentSizeBytes = segment }

// Room returns why nothing is written, for want of room on the disk; empty: there is room.
func (srv *Server) Room() string {
	if why := srv.room.Load(); why != nil {
		return *why
	}
	return ""
}

// hasRoom looks at the disk, and notes where it has less than some bytes free. A disk that does not say how much it has
// counts as one with room.
func (srv *Server) hasRoom(least uint64) bool {
	free, err := srv.cfg.Free(srv.dir)
	if err != nil || free >= least {
		return true
	}
	what := "etcd writes nothing"
	if srv.etcd == nil {
		what = "etcd is not started, and what was read of it before is served"
	}
	why := fmt.Sprintf("the disk of %s has %d MiB free: %s until there are %d MiB", srv.dir, free>>20, what, enough>>20)
	if srv.room.Swap(&why) == nil {
		srv.log.Error(why)
	}
	return false
}

// begun waits until the disk has room for an etcd that was not started, and starts it. Errors are etcd's, and the
// context's.
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
	if len(etcd.Server.Alarms()) > 0 { // as a process left it whose disk was full
		srv.maintain(ctx)
	}
	return etcd, nil
}

// look has etcd refuse what would be written once the disk has too little room, and take it again once there is enough.
func (srv *Server) look(ctx context.Context) {
	full := srv.Room() != ""
	switch {
	case !full && !srv.hasRoom(Least):
		member := uint64(srv.etcd.Server.MemberID())
		_, err := srv.etcd.Server.Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: etcdserverpb.AlarmType_NOSPACE})
		if err != nil {
			srv.room.Store(nil) // the next look tries again
			srv.log.Warn("etcd cannot be told that its disk is full; trying again", slog.Any("error", err))
		}
	case full && srv.hasRoom(enough):
		srv.room.Store(nil)
		srv.log.Info("the disk has room again: etcd writes")
		srv.maintain(ctx)
	}
}
