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

// pageSize is the maximum number of keys in one response to a list request. If each value has 64 KiB, the response has
// 16 MiB.
const pageSize = 256

// Position is a revision of one etcd cluster.
type Position struct {
	Cluster  uint64 // etcd's cluster id; 0: not known
	Revision int64
}

// Value is one stored record that is not decoded yet.
type Value struct {
	Path     string // path below records/
	Raw      []byte // nil: deleted, absent, or left out by LoadHashes
	Revision int64  // revision of the last write; 0 if deleted or absent

	hash model.Hash // hash of Raw; zero until it is computed
	size int        // size of a Raw that was left out, in bytes; 0 otherwise
}

// Size returns the size of the stored value in bytes; 0 for a deleted record.
func (v Value) Size() int { return v.size + len(v.Raw) }

// Key parses the record's key. Errors: the path is malformed, or this build does not know the kind
// (model.ErrUnknownKind).
func (v Value) Key() (model.Key, error) { return model.ParsePath(v.Path) }

// Hash returns the hash of the stored bytes (model.Head.Hash); the zero Hash for a deleted record.
func (v Value) Hash() model.Hash {
	if v.Raw == nil || v.hash != (model.Hash{}) {
		return v.hash
	}
	return model.HashOf(v.Raw)
}

// Hashed returns a copy of the Value that stores its hash, so that later calls of Hash cost nothing.
func (v Value) Hashed() Value {
	v.hash = v.Hash()
	return v
}

// Record decodes the value. Errors are those of Key and model.Decode. A Value without Raw is an error.
func (v Value) Record() (model.Record, error) {
	key, err := v.Key()
	if err != nil {
		return nil, err
	}
	return model.Decode(key, v.Raw)
}

// State is the list of all stored records at one revision.
type State struct {
	At    Position // position of the list; a watch continues from here
	Store int64    // etcd's newest revision shortly before the list
	// Head is the newest head (the record that each batch writes). It may be later than At. If the head is incomplete,
	// a Load of revision 0 lists the last complete revision, provided that etcd still has it.
	Head Head
	// Complete is the revision at the end of a batch whose state Values contain. It is 0 if Values come from the middle
	// of a batch, or if there is no valid head.
	Complete int64
	// Said is the digest of all records that the head of the revision Complete states. Contents is the digest of
	// Values. If they differ, a writer other than the leader has changed records.
	Said, Contents Contents
	Values         []Value // ordered by path
}

// Load lists the records at one revision. Values that do not decode are listed too. A revision above 0 is listed as it
// is, and State.Complete comes from the head at that revision. For revision 0, Load lists the present revision if its
// head is complete. If the head is incomplete, Load lists the last complete revision. If no revision is complete, or
// etcd no longer has the last complete one, Load lists the present revision, and State.Complete is 0. Errors:
// ErrCompacted if etcd no longer has the revision, or compacts it between two pages. All other errors are etcd's. The
// State that comes with an error must not be used.
//
// For revision 0, the present records may contradict a complete head. Load then lists the revision of the head instead,
// provided that etcd still has it and its records agree with the head. State.At is then that revision, and a watch from
// there delivers the later changes.
func (s *Store) Load(ctx context.Context, revision int64) (*State, error) {
	return s.load(ctx, revision, Value.Hashed)
}

// LoadHashes does the same as Load, but keeps Value.Raw only for paths that the predicate selects. All values have
// their hash and size. Use it for comparisons, because the raw records of many clusters need much memory. Errors are
// those of Load.
func (s *Store) LoadHashes(ctx context.Context, revision int64, whole func(path string) bool) (*State, error) {
	return s.load(ctx, revision, func(v Value) Value {
		if v = v.Hashed(); !whole(v.Path) {
			v.size, v.Raw = len(v.Raw), nil
		}
		return v
	})
}

// load lists records. The function keep converts each listed value to the one for State.Values.
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
		if err := s.setFromHead(ctx, state, revision); err != nil {
			return nil, err
		}
	case !stat.Head.Complete && state.Complete != 0:
		state.At.Revision = state.Complete
		if err = s.setFromHead(ctx, state, state.Complete); err == nil {
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

// setFromHead sets Complete and Said of the state from the head at a revision.
func (s *Store) setFromHead(ctx context.Context, state *State, revision int64) error {
	resp, err := s.client.Get(ctx, s.prefix+headPath, clientv3.WithRev(revision))
	if err != nil {
		return fmt.Errorf("read the head at revision %d: %w", revision, err)
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
			return fmt.Errorf("list records at revision %d: %w", revision, err)
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

// Before reads the records at some paths (below records/) as they were just before a revision, which must be above 1.
// The result has the order of paths. An absent record has a nil Raw. Errors: ErrCompacted if etcd no longer has the
// preceding revision. All other errors are etcd's.
func (s *Store) Before(ctx context.Context, paths []string, revision int64) ([]Value, error) {
	values := make([]Value, 0, len(paths))
	for some := range slices.Chunk(paths, MaxTxnOps) {
		var reads []clientv3.Op
		for _, path := range some {
			reads = append(reads, clientv3.OpGet(s.prefix+recordsPath+path, clientv3.WithRev(revision-1)))
		}
		resp, err := s.client.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return nil, fmt.Errorf("read %d records as they were before revision %d: %w", len(some), revision, err)
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

// orEmpty returns an empty slice in place of nil, because nil means that a record is absent.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
