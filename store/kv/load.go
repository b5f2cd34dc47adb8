package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/model"
)

// pageSize is the number of records in one list request: 16 MiB if each has 64 KiB.
const pageSize = 256

// Position is a revision of one etcd cluster.
type Position struct {
	Cluster  uint64
	Revision int64
}

// Value is one stored record that is not decoded yet.
type Value struct {
	Path     string // below records/
	Raw      []byte // nil: deleted, or left out by LoadHashes
	Revision int64  // of the modification; 0 for deletions

	hash model.Hash // of Raw, once it was computed
	size int        // of Raw in bytes, where Raw is left out
}

// Size returns the size of the stored value in bytes.
func (v Value) Size() int { return v.size + len(v.Raw) }

// Key parses the record's key. An error means that this build does not know the kind in the path.
func (v Value) Key() (model.Key, error) { return model.ParsePath(v.Path) }

// Hash returns the hash of the decoded record; the zero Hash for a deleted record.
func (v Value) Hash() model.Hash {
	if v.Raw == nil || v.hash != (model.Hash{}) {
		return v.hash
	}
	return model.HashOf(v.Raw)
}

// Hashed returns the Value with its hash stored in it.
func (v Value) Hashed() Value {
	v.hash = v.Hash()
	return v
}

// Record decodes the value. An error means that the path or the bytes are invalid for this build (model.Decode).
func (v Value) Record() (model.Record, error) {
	key, err := v.Key()
	if err != nil {
		return nil, err
	}
	return model.Decode(key, v.Raw)
}

// State is the list of all stored records at one revision.
type State struct {
	At    Position // of the list; a watch continues from here
	Store int64    // etcd's revision at the time of the list
	// Head is the newest head, which may be later than At. If it is incomplete, the list is of the last complete revision,
	// if etcd still has that.
	Head Head
	// Complete is the complete revision that Values are the state of. 0: Values are the middle of a batch, or there is no
	// head.
	Complete int64
	// Said holds the Contents in the head of the revision Complete, Contents those of Values. A difference means that a
	// writer other than the leader changed records.
	Said, Contents Contents
	Values         []Value // ordered by path
}

// Load lists the records at one pinned revision. Revision 0 stands for the newest complete one. If etcd no longer has
// it, the present revision is listed and State.Complete is 0. Any other revision is listed as it is, and Complete comes
// from its own head. Values that do not decode are listed too. ErrCompacted: etcd no longer has the revision.
//
// If the records contradict the newest head, Load lists the head's own revision instead, provided that etcd still has
// it and its records agree with the head. State.At is then that revision, and a watch from there delivers the later
// changes.
func (s *Store) Load(ctx context.Context, revision int64) (*State, error) {
	return s.load(ctx, revision, Value.Hashed)
}

// LoadHashes is Load for comparisons. Values keep their hash and size; Raw stays only for paths that whole selects. The
// raw records of many clusters would be a large part of the leader's memory. Errors are those of Load.
func (s *Store) LoadHashes(ctx context.Context, revision int64, whole func(path string) bool) (*State, error) {
	return s.load(ctx, revision, func(v Value) Value {
		if v = v.Hashed(); !whole(v.Path) {
			v.size, v.Raw = len(v.Raw), nil
		}
		return v
	})
}

// load lists records and stores each as keep returns it.
func (s *Store) load(ctx context.Context, revision int64, keep func(Value) Value) (*State, error) {
	stat, err := s.Stat(ctx)
	if err != nil {
		return nil, err
	}
	state := &State{At: Position{stat.Cluster, stat.Revision}, Store: stat.Revision, Head: stat.Head, Complete: stat.Head.CompleteRevision(),
		Said: stat.Head.Contents}
	switch {
	case revision != 0:
		state.At.Revision = revision
		if err := s.said(ctx, state, revision); err != nil {
			return nil, err
		}
	case !stat.Head.Complete && state.Complete != 0:
		state.At.Revision = state.Complete
		if err = s.said(ctx, state, state.Complete); err == nil {
			err = s.list(ctx, state, keep)
		}
		if !errors.Is(err, ErrCompacted) {
			return state, err
		}
		state.At.Revision, state.Complete, state.Said = stat.Revision, 0, Contents{}
	}
	if err := s.list(ctx, state, keep); err != nil || revision != 0 || !state.Head.Complete || len(state.Contents.Differ(state.Said)) == 0 {
		return state, err
	}
	before := *state
	before.At.Revision = state.Head.Revision
	if err := s.list(ctx, &before, keep); err == nil && len(before.Contents.Differ(state.Said)) == 0 {
		return &before, nil
	}
	return state, nil
}

// said sets Complete and Said from the head at a revision.
func (s *Store) said(ctx context.Context, state *State, revision int64) error {
	resp, err := s.client.Get(ctx, s.prefix+headPath, clientv3.WithRev(revision))
	if err != nil {
		return fmt.Errorf("read the head at revision %d: %w", revision, translate(err))
	}
	state.Complete, state.Said = 0, Contents{}
	if len(resp.Kvs) > 0 {
		if head := decodeHead(resp.Kvs[0].Value, resp.Kvs[0].ModRevision); head.Complete {
			state.Complete, state.Said = head.Revision, head.Contents
		}
	}
	return nil
}

// list reads all records at the state's revision, page by page.
func (s *Store) list(ctx context.Context, state *State, keep func(Value) Value) error {
	folder, revision := s.prefix+recordsPath, state.At.Revision
	from, end := folder, after(folder)
	var values []Value
	for {
		page, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(pageSize))
		if err != nil {
			return fmt.Errorf("list records at revision %d: %w", revision, translate(err))
		}
		for _, kv := range page.Kvs {
			values = append(values, keep(Value{Path: strings.TrimPrefix(string(kv.Key), folder), Raw: orEmpty(kv.Value), Revision: kv.ModRevision}))
		}
		if !page.More {
			state.Values, state.Contents = values, ContentsOf(values)
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// Before reads the records at some paths as they were before a revision. An absent record has no Raw. ErrCompacted:
// etcd no longer has that revision.
func (s *Store) Before(ctx context.Context, paths []string, revision int64) ([]Value, error) {
	values := make([]Value, 0, len(paths))
	for some := range slices.Chunk(paths, MaxTxnOps) {
		var reads []clientv3.Op
		for _, path := range some {
			reads = append(reads, clientv3.OpGet(s.prefix+recordsPath+path, clientv3.WithRev(revision-1)))
		}
		resp, err := s.client.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return nil, fmt.Errorf("read %d records as they were before revision %d: %w", len(some), revision, translate(err))
		}
		for i, path := range some {
			v := Value{Path: path}
			if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
				v.Raw, v.Revision = orEmpty(kvs[0].Value), kvs[0].ModRevision
			}
			values = append(values, v)
		}
	}
	return values, nil
}

// orEmpty makes a stored empty value differ from nil, which stands for an absent one.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
