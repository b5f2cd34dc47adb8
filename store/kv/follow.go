package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Folder is the list of all blobs below a folder at one revision. It is immutable.
type Folder struct {
	Blobs    []Blob // ordered by path
	Revision int64  // etcd's revision in the response with the list, or with the last change
}

// Follow returns a channel of states of a folder: the present state, and one after each change. The folder must be one
// of fleetFamilies, or "leader/". In "leader/" the oldest key is that of the leader. For any other folder Follow
// returns an error. A slow reader receives only the newest state. While etcd does not answer, no state arrives.
// Afterwards the folder is listed again. The channel is closed when ctx ends.
func (s *Store) Follow(ctx context.Context, folder string) (<-chan Folder, error) {
	from := s.prefix + folder
	if folder != leaderPath+"/" {
		var err error
		if from, err = s.fleetKey(folder); err != nil {
			return nil, err
		}
	}
	states := make(chan Folder, 1)
	go func() {
		defer close(states)
		for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 2*time.Second) {
			began := time.Now()
			err := s.follow(ctx, from, states)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > 10*time.Second {
				pause = 100 * time.Millisecond
			}
			s.log.Warn("the watch on a folder of etcd failed, trying again", slog.String("folder", folder), slog.Any("error", err),
				slog.Duration("pause", pause))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}()
	return states, nil
}

// follow lists and watches the folder once. Its error, never nil, is the reason for which the watch ended.
func (s *Store) follow(ctx context.Context, from string, states chan Folder) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	list, err := s.client.Get(ctx, from, clientv3.WithRange(after(from)))
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	blobs := map[string]Blob{}
	for _, kv := range list.Kvs {
		blobs[string(kv.Key)] = s.blob(kv)
	}
	publish(states, blobs, list.Header.Revision)
	watch := s.client.Watch(ctx, from, clientv3.WithRange(after(from)), clientv3.WithRev(list.Header.Revision+1))
	for resp := range watch {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("watch: %w", translate(err))
		}
		for _, event := range resp.Events {
			if event.Type == mvccpb.Event_DELETE {
				delete(blobs, string(event.Kv.Key))
			} else {
				blobs[string(event.Kv.Key)] = s.blob(event.Kv)
			}
		}
		if len(resp.Events) > 0 {
			publish(states, blobs, resp.Header.Revision)
		}
	}
	return errors.New("etcd closed the watch")
}

func (s *Store) blob(kv *mvccpb.KeyValue) Blob {
	return Blob{Path: s.path(string(kv.Key)), Raw: orEmpty(kv.Value), Revision: kv.ModRevision}
}

// publish sends a state in place of one that the reader has not received. It is the only writer of the channel, so it
// never blocks.
func publish(states chan Folder, blobs map[string]Blob, revision int64) {
	folder := Folder{Revision: revision, Blobs: make([]Blob, 0, len(blobs))}
	for _, key := range slices.Sorted(maps.Keys(blobs)) {
		folder.Blobs = append(folder.Blobs, blobs[key])
	}
	select {
	case <-states:
	default:
	}
	states <- folder
}
