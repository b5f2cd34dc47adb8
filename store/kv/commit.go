package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/store/model"
)

// The bounds of one transaction. etcd itself refuses 128 operations and 1.5 MiB.
const (
	MaxTxnOps   = 100
	MaxTxnBytes = MaxRecordBytes + headRoom
	// MaxRecordBytes is how large one record's key and value may be together.
	MaxRecordBytes = 1<<20 - 512
	headRoom       = 4 << 10 // for the head and the fence in the same transaction
)

// Batch is one semantic change: what is put and deleted becomes visible to replicas together.
type Batch struct {
	Epoch Epoch
	Place Place // of the head that the batch makes; its Chain may be 0: the head says no place
	// After is the head's revision that this batch was compared with, from Load or the last Commit: the batch is refused
	// as stale where the head has moved. 0: any complete head, or none. Where the head is incomplete, only a batch made
	// from a full comparison with it may follow, and says so by naming it here.
	After   int64
	Puts    []model.Record
	Deletes []model.Key
	// Restore is what others changed and is put back as it was, byte for byte; Raw nil: it was not there. Stored has it as it was, so
	// that it changes nothing there.
	Restore []Value

	// Stored says what the records are before the batch, as the writer knows them: what others changed since is not in it. It is not
	// changed. Not Known: the head of the batch says nothing.
	Stored Contents
	// Was is the hash of what is stored under each key of Puts and Deletes, in the same sense; a key that is not in it: nothing.
	Was map[model.Key]model.Hash
}

// Len is the number of records the batch touches.
func (b *Batch) Len() int { return len(b.Puts) + len(b.Deletes) + len(b.Restore) }

// Commit writes a batch, puts before deletes, and returns the complete head that holds it. Every transaction writes the head, so a
// revision that changed records and not the head is somebody else's. An empty batch writes nothing where the head is complete
// already, of the batch's term, and says of the records what the batch does; else it writes the head.
//
// Errors: *TooLargeError comes with a valid head: all but the named records was written. ErrDeposed and ErrStale: the
// rest of the batch was not written. After any other error it is unknown what was written: load and compare again.
func (s *Store) Commit(ctx context.Context, b Batch) (Head, error) {
	if err := b.check(); err != nil {
		return Head{}, err
	}
	all := txns{store: s, batch: b, contents: b.Stored.Clone()}
	next, stop := iter.Pull(all.each)
	defer stop()
	ops, more := next()
	if all.err != nil {
		return Head{}, all.err
	}
	head, known := s.headOfMine(b)
	if !known || !more { // with nothing to write no comparison would find that the head moved
		var err error
		if head, err = s.headFor(ctx, b); err != nil {
			return Head{}, fmt.Errorf("commit batch of %d at epoch %d: %w", b.Len(), b.Epoch.Revision, err)
		}
	}
	if !more && head.Complete && head.Place.sameTerm(b.Place) &&
		(!all.contents.Known() || head.Contents.Known() && len(all.contents.Differ(head.Contents)) == 0) {
		return head, tooLarge(all.refused)
	}
	head, err := s.write(ctx, head, ops, next, &all)
	if err != nil {
		return Head{}, err
	}
	s.last.Store(&wrote{b.Epoch, head})
	return head, tooLarge(all.refused)
}

// write writes the transactions of a batch after a head, the first of them given, and returns the complete head.
func (s *Store) write(ctx context.Context, head Head, ops []clientv3.Op, following func() ([]clientv3.Op, bool), all *txns) (Head, error) {
	b := all.batch
	next := Head{Epoch: b.Epoch.Revision, Seq: b.Place.Seq, LastComplete: head.CompleteRevision(), Place: head.Place, Revision: head.Revision}
	for n := 1; ; n++ {
		later, more := following() // the last transaction completes the head
		if all.err != nil {
			return Head{}, all.err
		}
		if next.Time = s.now(); !more {
			next.Complete, next.Contents, next.Place = true, all.contents, b.Place
		}
		value, err := s.encodeHead(&next)
		if err != nil {
			return Head{}, err
		}
		next.Revision, err = s.fenced(ctx, b.Epoch, next.Revision, append(ops, clientv3.OpPut(s.prefix+headPath, string(value))))
		if err != nil {
			return Head{}, fmt.Errorf("commit batch of %d at epoch %d, transaction %d: %w", b.Len(), b.Epoch.Revision, n, err)
		}
		if !more {
			return next, nil
		}
		if ops = later; s.between != nil {
			s.between()
		}
	}
}

// encodeHead makes the value of a head. One that is too large for its room (which takes more kinds than any build has) says nothing of the
// records.
func (s *Store) encodeHead(h *Head) ([]byte, error) {
	value, err := h.encode()
	if err != nil || len(value) <= headRoom-fenceRoom {
		return value, err
	}
	s.log.Error("there are too many kinds of records for the head, which is written without their counts and digests",
		slog.Int("kinds", len(h.Contents.Kinds())))
	h.Contents = Contents{}
	return h.encode()
}

// wrote is a complete head, and who wrote it.
type wrote struct {
	epoch Epoch
	head  Head
}

// headOfMine is the head that the batch follows, where this process wrote it in the same epoch: then it need not be read, since
// every transaction compares the epoch and the head's revision again.
func (s *Store) headOfMine(b Batch) (Head, bool) {
	last := s.last.Load()
	if last == nil || last.epoch != b.Epoch || last.head.Revision != b.After {
		return Head{}, false
	}
	return last.head, true
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

// check refuses a batch that no transaction could be made of.
func (b *Batch) check() error {
	if b.Epoch.Key == "" || b.Epoch.Revision == 0 {
		return errors.New("commit without an epoch")
	}
	if twice, ok := repeated(*b); ok {
		return fmt.Errorf("the batch names %s twice", twice)
	}
	return nil
}

// txns makes the operations of a batch, transaction by transaction, each with room for the head. Records are encoded when their transaction's turn comes: a
// comparison may write all that many clusters have, which encoded at once would be a large part of what the leader has in memory.
type txns struct {
	store *Store
	batch Batch
	// What is known after the last transaction:
	contents Contents // what the records are then
	refused  TooLargeError
	err      error // why there are no more transactions
}

// each is every transaction, in order.
func (t *txns) each(yield func([]clientv3.Op) bool) {
	var ops []clientv3.Op
	size := 0
	for op, bytes := range t.ops {
		if len(ops) == MaxTxnOps-1 || len(ops) > 0 && size+bytes > MaxRecordBytes {
			if !yield(ops) {
				return
			}
			ops, size = nil, 0
		}
		ops, size = append(ops, op), size+bytes
	}
	if len(ops) > 0 && t.err == nil {
		yield(ops)
	}
}

// ops is every operation, puts before deletes, with at most how many bytes it takes.
func (t *txns) ops(yield func(clientv3.Op, int) bool) {
	folder := t.store.prefix + recordsPath
	put := func(key string, value []byte) bool {
		return yield(clientv3.OpPut(key, string(value)), sizeOf(key, value))
	}
	for _, record := range t.batch.Puts {
		path := record.Meta().Key.Path()
		value, err := model.Encode(record)
		if err != nil {
			t.err = err
			return
		}
		if bytes := sizeOf(folder+path, value); bytes > MaxRecordBytes {
			t.refused.Records = append(t.refused.Records, record.Meta().Key)
			t.refused.Sizes = append(t.refused.Sizes, bytes)
			continue
		}
		if t.count(record, path, value); !put(folder+path, value) {
			return
		}
	}
	for _, v := range t.batch.Restore {
		if v.Raw != nil && !put(folder+v.Path, v.Raw) {
			return
		}
	}
	remove := func(key string) bool { return yield(clientv3.OpDelete(key), sizeOf(key, nil)) }
	for _, key := range t.batch.Deletes {
		if t.contents.Known() {
			t.contents.Replace(key.Path(), t.batch.Was[key], model.Hash{})
		}
		if !remove(t.store.RecordKey(key)) {
			return
		}
	}
	for _, v := range t.batch.Restore {
		if v.Raw == nil && !remove(folder+v.Path) {
			return
		}
	}
}

// count takes down in contents that a record is put.
func (t *txns) count(record model.Record, path string, value []byte) {
	if !t.contents.Known() {
		return
	}
	hash := model.HashOf(value)
	if t.contents.Replace(path, t.batch.Was[record.Meta().Key], hash); hash != record.Meta().Hash {
		// The writer will know the record by another hash than that of its bytes. Nothing is compared then: no fleet may stand still
		// for a fault in how records are encoded.
		t.store.log.Error("a record's hash is not that of its encoded bytes: the head is written without counts and digests",
			slog.String("record", record.Meta().Key.String()))
		t.contents = Contents{}
	}
}

func sizeOf(key string, value []byte) int { return len(key) + len(value) + opBytes }

// repeated finds a record that stands twice in a batch: which of the two holds would be left to chance.
func repeated(b Batch) (string, bool) {
	seen := make(map[string]bool, b.Len())
	twice := func(path string) bool {
		was := seen[path]
		seen[path] = true
		return was
	}
	for _, record := range b.Puts {
		if key := record.Meta().Key; twice(key.Path()) {
			return key.String(), true
		}
	}
	for _, key := range b.Deletes {
		if twice(key.Path()) {
			return key.String(), true
		}
	}
	for _, v := range b.Restore {
		if twice(v.Path) {
			return v.Path, true
		}
	}
	return "", false
}

// opBytes is at least what an operation takes beside its key and value, fenceRoom what the fence and the head's key take.
const (
	opBytes   = 32
	fenceRoom = 512
)

func tooLarge(refused TooLargeError) error {
	if len(refused.Records) == 0 {
		return nil
	}
	return &refused
}
