package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Thresholds for defragmentation. Compaction frees space inside the file, and defragmentation returns it to the disk.
// Defragmentation blocks the server for about a second per 100 MiB in use. So Maintain waits until a defragmentation
// frees at least as much as is in use.
const (
	defragSlack = 32 << 20 // least number of bytes to gain, unless the file is filling
	fillingPart = 0.8      // part of the quota; in a larger file, a gain of a tenth of the quota suffices
)

// Size is the space of the largest database among the endpoints, in bytes.
type Size struct {
	File  int64 // size of the file on disk, which etcd compares with its quota
	InUse int64 // part of File with current values and with history that is not compacted
	Quota int64 // size of File at which etcd stops writing; 0: not reported (etcd before 3.6)
	Full  bool  // etcd has stopped writing (the alarm NOSPACE of any endpoint)

	Revision int64 // etcd's revision at the time of the request
	Silent   int   // number of endpoints that did not answer, or know no leader
}

// Filling reports whether the database has used 80 % of its quota, or etcd has stopped writing. If Quota is unknown
// (0), only Full counts.
func (s Size) Filling() bool {
	return s.Full || s.Quota > 0 && float64(s.File) >= fillingPart*float64(s.Quota)
}

// Size queries all endpoints concurrently and returns the size of the largest file, because one full endpoint stops the
// writes of all. It waits for every answer, or until ctx ends. Silent endpoints are an error only if no endpoint
// answers. In that case the error names each endpoint, and only Size.Silent is set.
func (s *Store) Size(ctx context.Context) (size Size, err error) {
	endpoints := s.client.Endpoints()
	answers, failures := make([]*clientv3.StatusResponse, len(endpoints)), make([]error, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() { answers[i], failures[i] = s.client.Status(ctx, endpoint) })
	}
	asking.Wait()
	answered := false
	for i, status := range answers {
		if failures[i] != nil {
			size.Silent++
			err = errors.Join(err, fmt.Errorf("size of the database at %s: %w", endpoints[i], failures[i]))
			continue
		}
		if answered = true; status.Leader == 0 {
			size.Silent++
		}
		if full := size.Full; status.DbSize > size.File {
			size = Size{File: status.DbSize, InUse: status.DbSizeInUse, Quota: status.DbSizeQuota, Full: full, Revision: size.Revision,
				Silent: size.Silent}
		}
		size.Revision = max(size.Revision, status.Header.GetRevision())
		for _, text := range status.Errors {
			size.Full = size.Full || strings.Contains(text, pb.AlarmType_NOSPACE.String())
		}
	}
	if answered {
		return size, nil
	}
	return size, err
}

// Keeps reports whether etcd still has the history at a revision. A future revision is an error. All errors are etcd's.
func (s *Store) Keeps(ctx context.Context, revision int64) (bool, error) {
	// Every role of navarchd may read this folder.
	_, err := s.client.Get(ctx, s.LeaderPath()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(revision))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("history at revision %d: %w", revision, err)
	}
	return true, nil
}

// Compact drops all history before a revision, and returns when the space inside the file is free. On an idle etcd,
// Size.InUse contains this space until the next write. A revision that was compacted before is not an error. Other
// errors are etcd's.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	_, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	return nil
}

// Defragment returns the free space of the database files to the disk, one endpoint after the other. An endpoint
// answers no request meanwhile. Defragment stops at the first error, which names the endpoint.
func (s *Store) Defragment(ctx context.Context) error {
	for _, endpoint := range s.client.Endpoints() {
		if _, err := s.client.Defragment(ctx, endpoint); err != nil {
			return fmt.Errorf("defragment %s: %w", endpoint, err)
		}
	}
	return nil
}

// pays reports whether a defragmentation frees enough according to the thresholds above.
func (s Size) pays() bool {
	free := s.File - s.InUse
	return free >= max(s.InUse, defragSlack) || s.Filling() && free >= s.Quota/10
}

// Maintain performs one round of maintenance. If etcd has stopped writing, it compacts all history, defragments the
// file and disarms all alarms. If etcd still writes, Maintain defragments if at least half of the file and 32 MiB are
// free. In a filling file (Size.Filling), a free tenth of the quota suffices. If less is free, Maintain only makes a
// small write, after which etcd reports its free space correctly. Maintain is only for an etcd without other users,
// because it drops history and disarms all alarms. embedded.Server runs it every minute. Errors are etcd's. After an
// error, the next call starts again from the beginning.
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
	} else if !size.pays() {
		return s.countFreed(ctx)
	}
	if err := s.Defragment(ctx); err != nil {
		return err
	}
	if size.Full {
		if _, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
			return fmt.Errorf("disarm the alarms: %w", err)
		}
	}
	s.log.Info("the database of etcd was defragmented", slog.Int64("bytes_before", size.File), slog.Int64("bytes_in_use", size.InUse),
		slog.Bool("was_full", size.Full))
	return nil
}

// countFreed makes the database count the space that a compaction freed. The database (bbolt) counts it at the next
// write, and an idle etcd writes nothing. The write is a lease that is granted and revoked.
func (s *Store) countFreed(ctx context.Context) error {
	lease, err := s.client.Grant(ctx, 60)
	if err == nil {
		_, err = s.client.Revoke(ctx, lease.ID)
	}
	if err != nil {
		return fmt.Errorf("write to the database: %w", err)
	}
	return nil
}
