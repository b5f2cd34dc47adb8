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

// The rules by which a database is kept small. Compaction makes room inside the file, defragmentation gives it
// back; it blocks the server for about a second per 100 MiB that are in use, so it waits until it frees as much again.
const (
	defragSlack = 32 << 20
	fillingPart = 0.8 // of the quota: from there on each tenth of it that defragmentation frees counts
)

// Size is what a database takes, in bytes.
type Size struct {
	File  int64 // on disk: what etcd compares with its quota
	InUse int64 // of it, by history that was not compacted and by what is current
	Quota int64 // at which etcd stops writing; 0: it does not say (before 3.6)
	Full  bool  // it has stopped

	Revision int64 // of the store, when it was asked
	Silent   int   // endpoints that did not answer, or know no leader
}

// Filling says whether the database has used 80 % of its quota.
func (s Size) Filling() bool {
	return s.Full || s.Quota > 0 && float64(s.File) >= fillingPart*float64(s.Quota)
}

// Size asks every endpoint, and answers for the one whose file is the largest: the first that stops writing stops all.
// An error names each endpoint that did not answer, where none did; the size has their number all the same. One that is silent keeps no other one waiting.
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

// Keeps says whether etcd still has its history at a revision: nothing has compacted that. Errors are etcd's.
func (s *Store) Keeps(ctx context.Context, revision int64) (bool, error) {
	// what every role may read
	_, err := s.client.Get(ctx, s.LeaderPath()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(revision))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("history at revision %d: %w", revision, err)
	}
	return true, nil
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
// It stops at the first error, which names the endpoint.
func (s *Store) Defragment(ctx context.Context) error {
	for _, endpoint := range s.client.Endpoints() {
		if _, err := s.client.Defragment(ctx, endpoint); err != nil {
			return fmt.Errorf("defragment %s: %w", endpoint, err)
		}
	}
	return nil
}

// pays says whether a defragmentation frees enough.
func (s Size) pays() bool {
	free := s.File - s.InUse
	return free >= max(s.InUse, defragSlack) || s.Filling() && free >= s.Quota/10
}

// Maintain does one round: where etcd stopped writing, all history is compacted, the file is shrunk and the alarm taken
// back; else the file is shrunk where more than half of it (and 32 MiB) is free, or, where it fills, a tenth of the quota. For an etcd
// that is nobody else's: an embedded one does it every minute. Errors are etcd's; the next round does what this one left.
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
			return fmt.Errorf("take back the alarm: %w", err)
		}
	}
	s.log.Info("the database of etcd was shrunk", slog.Int64("bytes_before", size.File), slog.Int64("bytes_in_use", size.InUse),
		slog.Bool("was_full", size.Full))
	return nil
}

// countFreed has the database count what a compaction freed: it does so with the write after it (bbolt: pages are pending until then), which an idle
// etcd would never make. What it writes is a lease, and its end.
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
