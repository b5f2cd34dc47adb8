package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Update contains the changes of one revision to the head and the records. An Update without changes states that the
// head and the records did not change further up to its Revision. The last Update of a watch has only Err.
type Update struct {
	Revision int64
	// Head is the head that this revision wrote; nil if it wrote none. A deleted head is the zero Head.
	Head   *Head
	Values []Value // records that this revision changed, in etcd's order; a deleted one has no Raw
	Err    error
}

// Watch sends the changes of the head and the records after a position, until ctx ends or the watch fails. Each
// revision with changes is one Update, in order, without gaps or repetitions. After a broken connection the watch
// resumes by itself. The last Update has the error: ErrCompacted, ErrClusterChanged, ErrRegressed, the context's or
// etcd's. After it the channel is closed. If ctx ends, the channel may be closed without a last Update. The caller must
// receive until the channel is closed, or end ctx.
func (s *Store) Watch(ctx context.Context, from Position) <-chan Update {
	updates := make(chan Update)
	go func() {
		defer close(updates)
		err := s.watch(ctx, from, updates)
		select {
		case updates <- Update{Err: err}:
		case <-ctx.Done():
		}
	}()
	return updates
}

func (s *Store) watch(ctx context.Context, from Position, updates chan<- Update) error {
	// By default a member of etcd that knows no leader stays silent for ever. With this option it cancels the watch,
	// and the client moves to another member.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	start, end := watched(s.prefix)
	responses := s.client.Watch(ctx, start, clientv3.WithRange(end), clientv3.WithRev(from.Revision+1),
		clientv3.WithCreatedNotify(), clientv3.WithProgressNotify(), clientv3.WithFragment())
	for resp := range responses {
		switch {
		case resp.CompactRevision != 0:
			return fmt.Errorf("watch from revision %d: %w up to %d", from.Revision+1, ErrCompacted, resp.CompactRevision)
		case resp.Err() != nil:
			return fmt.Errorf("watch from revision %d: %w", from.Revision+1, resp.Err())
		}
		if err := from.check(resp.Header.ClusterId, resp.Header.Revision); err != nil {
			return err
		}
		for _, update := range s.updates(resp) {
			select {
			case updates <- update:
				from.Revision = update.Revision
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("etcd closed the watch")
}

// check returns an error if a response does not come from p's cluster, or if its revision is before p's. Cluster 0 of p
// fits every cluster.
func (p Position) check(cluster uint64, revision int64) error {
	if p.Cluster != 0 && cluster != p.Cluster {
		return fmt.Errorf("%w: %x was read before, %x answers now", ErrClusterChanged, p.Cluster, cluster)
	}
	if revision < p.Revision {
		return fmt.Errorf("%w: from %d to %d", ErrRegressed, p.Revision, revision)
	}
	return nil
}

// Check returns an error if a store with the given Stat cannot be the store that was read up to the position p. The
// error matches ErrClusterChanged or ErrRegressed. A position with Cluster 0 fits every cluster.
func (p Position) Check(stat Stat) error { return p.check(stat.Cluster, stat.Revision) }

// updates converts a response of the watch. If the response proves that nothing else happened up to a later revision,
// the last Update is empty and has that revision, so that a restarted watch need not begin far back.
func (s *Store) updates(resp clientv3.WatchResponse) []Update {
	updates := s.group(resp.Events)
	var seen int64
	if n := len(resp.Events); n > 0 {
		seen = resp.Events[n-1].Kv.ModRevision
	} else if resp.IsProgressNotify() {
		seen = resp.Header.Revision
	}
	if n := len(updates); seen > 0 && (n == 0 || updates[n-1].Revision < seen) {
		updates = append(updates, Update{Revision: seen})
	}
	return updates
}

// group makes one Update of the events of each revision. etcd never divides a revision between responses.
func (s *Store) group(events []*clientv3.Event) []Update {
	var updates []Update
	for _, event := range events {
		path, ok := strings.CutPrefix(string(event.Kv.Key), s.prefix)
		record, isRecord := strings.CutPrefix(path, recordsPath)
		if !ok || path != headPath && !isRecord {
			continue
		}
		if n := len(updates); n == 0 || updates[n-1].Revision != event.Kv.ModRevision {
			updates = append(updates, Update{Revision: event.Kv.ModRevision})
		}
		update := &updates[len(updates)-1]
		deleted := event.Type == mvccpb.Event_DELETE
		switch {
		case isRecord && deleted:
			update.Values = append(update.Values, Value{Path: record})
		case isRecord:
			update.Values = append(update.Values, Value{Path: record, Raw: orEmpty(event.Kv.Value), Revision: event.Kv.ModRevision})
		case deleted:
			update.Head = &Head{}
		default:
			head := decodeHead(event.Kv.Value, event.Kv.ModRevision)
			update.Head = &head
		}
	}
	return updates
}
