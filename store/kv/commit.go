package kv

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/model"
)

// The bounds of one transaction. etcd itself refuses 128 operations and 1.5 MiB.
const (
	MaxTxnOps   = 100
	MaxTxnBytes = 1 << 20
	// MaxRecordBytes is how large one record's key and value may be together.
	MaxRecordBytes = MaxTxnBytes - headRoom
	headRoom       = 512 // for the head and the fence in the same transaction
)

// Batch is one semantic change: what is put and deleted becomes visible to replicas together.
type Batch struct {
	Epoch Epoch
	Seq   uint64 // counts the batches of an epoch; for people who look at the head
	// After is the head's revision that this batch was compared with, from Load or the last Commit: the batch is refused
	// as stale where the head has moved. 0: any complete head, or none. Where the head is incomplete, only a batch made
	// from a full comparison with it may follow, and says so by naming it here.
	After   int64
	Puts    []model.Record
	Deletes []model.Key
}

// Len is the number of records the batch touches.
func (b *Batch) Len() int { return len(b.Puts) + len(b.Deletes) }

// Commit writes a batch, puts before deletes, and returns the complete revision that holds it. An empty batch writes
// nothing where the head is complete already, and completes it where it is not.
//
// Errors: *TooLargeError comes with a valid revision: all but the named records was written. ErrDeposed and ErrStale: the
// rest of the batch was not written. After any other error it is unknown what was written: load and compare again.
func (s *Store) Commit(ctx context.Context, b Batch) (int64, error) {
	txns, refused, err := s.split(b)
	if err != nil {
		return 0, err
	}
	head, known := s.headOfMine(b)
	if !known || len(txns) == 0 { // with nothing to write no comparison would find that the head moved
		head, err = s.headFor(ctx, b)
	}
	if err != nil {
		return 0, fmt.Errorf("commit batch of %d at epoch %d: %w", b.Len(), b.Epoch.Revision, err)
	}
	if len(txns) == 0 {
		if head.Complete {
			return head.Revision, tooLarge(refused)
		}
		txns = [][]clientv3.Op{nil}
	}
	last := head.CompleteRevision()
	revision := head.Revision
	for i, ops := range txns {
		if i > 0 && s.between != nil {
			s.between()
		}
		if i == 0 || i == len(txns)-1 {
			next := Head{Epoch: b.Epoch.Revision, Seq: b.Seq, Complete: i == len(txns)-1, LastComplete: last, Time: s.now()}
			value, err := next.encode()
			if err != nil {
				return 0, err
			}
			ops = append(ops, clientv3.OpPut(s.prefix+headPath, string(value)))
		}
		written, err := s.fenced(ctx, b.Epoch, revision, ops)
		if err != nil {
			return 0, fmt.Errorf("commit batch of %d at epoch %d, transaction %d of %d: %w", b.Len(), b.Epoch.Revision, i+1, len(txns), err)
		}
		if i == 0 || i == len(txns)-1 {
			revision = written
		}
	}
	s.last.Store(&wrote{b.Epoch, revision})
	return revision, tooLarge(refused)
}

// wrote is a complete head, and who wrote it.
type wrote struct {
	epoch    Epoch
	revision int64
}

// headOfMine is the head that the batch follows, where this process wrote it in the same epoch: then it need not be read, since
// every transaction compares the epoch and the head's revision again.
func (s *Store) headOfMine(b Batch) (Head, bool) {
	last := s.last.Load()
	if last == nil || last.epoch != b.Epoch || last.revision != b.After {
		return Head{}, false
	}
	return Head{Revision: last.revision, Complete: true}, true
}

// headFor reads the head that the batch follows, if the epoch still leads and the batch may follow it.
func (s *Store) headFor(ctx context.Context, b Batch) (Head, error) {
	resp, err := s.client.Txn(ctx).If(fence(b.Epoch)).Then(clientv3.OpGet(s.prefix + headPath)).Commit()
	if err != nil {
		return Head{}, err
	}
	if !resp.Succeeded {
		return Head{}, ErrDeposed
	}
	var head Head
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		head = decodeHead(kvs[0].Value, kvs[0].ModRevision)
	}
	switch {
	case b.After != 0 && b.After != head.Revision:
		return Head{}, fmt.Errorf("%w: it is at revision %d, the batch follows %d", ErrStale, head.Revision, b.After)
	case b.After == 0 && head.Revision != 0 && !head.Complete:
		return Head{}, fmt.Errorf("%w: it is incomplete since revision %d", ErrStale, head.Revision)
	}
	return head, nil
}

// fenced writes one transaction if the epoch leads and the head is where it was left, and returns its revision.
func (s *Store) fenced(ctx context.Context, epoch Epoch, head int64, ops []clientv3.Op) (int64, error) {
	resp, err := s.client.Txn(ctx).
		If(fence(epoch), clientv3.Compare(clientv3.ModRevision(s.prefix+headPath), "=", head)).
		Then(ops...).
		Else(clientv3.OpGet(epoch.Key)).
		Commit()
	if err != nil {
		return 0, err
	}
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].CreateRevision == epoch.Revision {
		return 0, ErrStale
	}
	return 0, ErrDeposed
}

func fence(epoch Epoch) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(epoch.Key), "=", epoch.Revision)
}

// split divides a batch into the operations of its transactions, each with room for the head.
func (s *Store) split(b Batch) (txns [][]clientv3.Op, refused TooLargeError, err error) {
	if b.Epoch.Key == "" || b.Epoch.Revision == 0 {
		return nil, refused, errors.New("commit without an epoch")
	}
	if twice, ok := repeated(b); ok {
		return nil, refused, fmt.Errorf("the batch names %v twice", twice)
	}
	var ops []clientv3.Op
	size := 0
	add := func(op clientv3.Op, bytes int) {
		if len(ops) == MaxTxnOps-1 || size+bytes > MaxRecordBytes {
			txns, ops, size = append(txns, ops), nil, 0
		}
		ops, size = append(ops, op), size+bytes
	}
	for _, record := range b.Puts {
		key := s.RecordKey(record.Meta().Key)
		value, err := model.Encode(record)
		if err != nil {
			return nil, refused, err
		}
		bytes := len(key) + len(value) + opBytes
		if bytes > MaxRecordBytes {
			refused.Records = append(refused.Records, record.Meta().Key)
			refused.Sizes = append(refused.Sizes, bytes)
			continue
		}
		add(clientv3.OpPut(key, string(value)), bytes)
	}
	for _, key := range b.Deletes {
		path := s.RecordKey(key)
		add(clientv3.OpDelete(path), len(path)+opBytes)
	}
	if len(ops) > 0 {
		txns = append(txns, ops)
	}
	return txns, refused, nil
}

// repeated finds a key that stands twice in a batch: which of the two holds would be left to chance.
func repeated(b Batch) (model.Key, bool) {
	seen := make(map[model.Key]bool, b.Len())
	for i := range b.Len() {
		var key model.Key
		if i < len(b.Puts) {
			key = b.Puts[i].Meta().Key
		} else {
			key = b.Deletes[i-len(b.Puts)]
		}
		if seen[key] {
			return key, true
		}
		seen[key] = true
	}
	return model.Key{}, false
}

// opBytes is at least what an operation takes beside its key and value.
const opBytes = 32

func tooLarge(refused TooLargeError) error {
	if len(refused.Records) == 0 {
		return nil
	}
	return &refused
}
