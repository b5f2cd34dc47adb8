package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/model"
)

// pageSize is how many records one list request asks for: at 64 KiB each, 16 MiB.
const pageSize = 256

// Position is a place in the history of one etcd cluster.
type Position struct {
	Cluster  uint64
	Revision int64
}

// Value is one stored record, not decoded yet.
type Value struct {
	Path     string // below records/
	Raw      []byte // nil: deleted
	Revision int64  // of the modification; 0 for deletions
}

// Key is the record's key; an error where the path names no kind of this build.
func (v Value) Key() (model.Key, error) { return model.ParsePath(v.Path) }

// Hash is the hash that the decoded record will have.
func (v Value) Hash() model.Hash { return model.HashOf(v.Raw) }

// Record decodes the value.
func (v Value) Record() (model.Record, error) {
	key, err := v.Key()
	if err != nil {
		return nil, err
	}
	return model.Decode(key, v.Raw)
}

// State is every stored record at one revision.
type State struct {
	At    Position // what was listed; a watch goes on from here
	Store int64    // etcd's revision when it was listed
	// Head is the newest head, which may be later than At: where it is incomplete, the list is of the last complete
	// revision, if etcd still has that.
	Head Head
	// Complete is the complete revision that Values are the whole state of; 0: they are the middle of a batch, or there
	// is no head.
	Complete int64
	Values   []Value // ordered by path
}

// Load lists the records at one pinned revision. revision 0: the newest complete one; where there is none to be had, the
// present one, and State.Complete is 0. Another revision is listed as it is: Complete says what its own head says. Values
// that do not decode are listed like others. ErrCompacted where etcd no longer has the revision.
func (s *Store) Load(ctx context.Context, revision int64) (*State, error) {
	stat, err := s.Stat(ctx)
	if err != nil {
		return nil, err
	}
	state := &State{At: Position{stat.Cluster, stat.Revision}, Store: stat.Revision, Head: stat.Head, Complete: stat.Head.CompleteRevision()}
	switch {
	case revision != 0:
		if state.Complete, err = s.completeAt(ctx, revision); err != nil {
			return nil, err
		}
		state.At.Revision = revision
	case !stat.Head.Complete && state.Complete != 0:
		state.At.Revision = state.Complete
		state.Values, err = s.list(ctx, state.At.Revision)
		if !errors.Is(err, ErrCompacted) {
			return state, err
		}
		state.At.Revision, state.Complete = stat.Revision, 0
	}
	state.Values, err = s.list(ctx, state.At.Revision)
	return state, err
}

// completeAt is the complete revision that a past revision shows.
func (s *Store) completeAt(ctx context.Context, revision int64) (int64, error) {
	resp, err := s.client.Get(ctx, s.prefix+headPath, clientv3.WithRev(revision))
	if err != nil {
		return 0, fmt.Errorf("read the head at revision %d: %w", revision, translate(err))
	}
	if len(resp.Kvs) == 0 {
		return 0, nil
	}
	if head := decodeHead(resp.Kvs[0].Value, resp.Kvs[0].ModRevision); head.Complete {
		return head.Revision, nil
	}
	return 0, nil
}

// list reads all records at a revision, page by page.
func (s *Store) list(ctx context.Context, revision int64) ([]Value, error) {
	folder := s.prefix + recordsPath
	from, end := folder, after(folder)
	var values []Value
	for {
		page, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(pageSize))
		if err != nil {
			return nil, fmt.Errorf("list records at revision %d: %w", revision, translate(err))
		}
		for _, kv := range page.Kvs {
			values = append(values, Value{Path: strings.TrimPrefix(string(kv.Key), folder), Raw: orEmpty(kv.Value), Revision: kv.ModRevision})
		}
		if !page.More {
			return values, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// orEmpty tells an empty value from none.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
