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

// Bounds of one transaction. etcd itself refuses more than 128 operations and 1.5 MiB.
const (
	MaxTxnOps   = 100                       // operations, including the write of the head
	MaxTxnBytes = MaxRecordBytes + headRoom // bytes, including the head
	// MaxRecordBytes bounds the key and value of one record together, in bytes, with 32 bytes for their encoding.
	MaxRecordBytes = 1<<20 - 512
	headRoom       = 4 << 10 // for the head, and for the comparison with the election key (fence)
)

// Batch is one atomic change of the records. Readers see all its puts and deletes at once. The head is the etcd key
// that states whether the stored records are complete.
type Batch struct {
	Epoch Epoch // term of the writer; the batch is only written while the term lasts
	Place Place // place of the head that completes the batch; if its Chain is 0, the head states no place
	// After is the revision of the head that this batch was compared with, from Load or from the last Commit. If the
	// head has changed since, Commit returns ErrStale. If After is 0, the stored head must be complete or absent. Only
	// a batch from a full comparison may follow an incomplete head, and that batch states the head's revision.
	After   int64
	Puts    []model.Record
	Deletes []model.Key
	// Restore lists earlier values of records that other writers changed. They are written back byte for byte. If Raw
	// is nil, the record is deleted. Stored must count these records in their restored form.
	Restore []Value

	// Stored is the Contents of the records before the batch, as the writer knows them, without changes by others.
	// Commit does not modify it. If it is not Known, the head states no Contents.
	Stored Contents
	// Was maps each key of Puts and Deletes to the hash of its stored value, as the writer knows it. Absent keys have
	// no stored value.
	Was map[model.Key]model.Hash
}

// Len returns the number of records in the batch: puts, deletes and restored records.
func (b *Batch) Len() int { return len(b.Puts) + len(b.Deletes) + len(b.Restore) }

// Commit writes a batch, puts before deletes, and returns the complete head that it wrote. Every transaction writes the
// head, so a revision that changed records without the head comes from another writer. If the batch has nothing to
// write, Commit writes only the head. Commit writes nothing, and returns the stored head, if that head is also
// complete, of the batch's term, and agrees with Stored (if Known).
//
// Errors: the batch has no epoch or names a record twice (nothing was written), or a record does not encode. If a
// record does not encode, earlier transactions of the batch may have been written. If the error is a *TooLargeError,
// the head is valid, and everything but the named records was written. After ErrDeposed or ErrStale the remaining
// transactions of the batch were not written. After any other error the outcome is unknown, so the caller must load and
// compare again.
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
	if !known || !more { // an empty batch would not notice that the head moved
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

// write writes the transactions of a batch, and returns the complete head. The parameter head is the stored head. The
// parameter ops has the operations of the first transaction, and following returns those of the next one.
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

// encodeHead encodes a head. Contents are left out if the value exceeds its room, but no build has so many kinds.
func (s *Store) encodeHead(h *Head) ([]byte, error) {
	value, err := h.encode()
	if err != nil || len(value) <= headRoom-fenceRoom {
		return value, err
	}
	s.log.Error("there are too many kinds of records for the head: it is written without counts and digests",
		slog.Int("kinds", len(h.Contents.Kinds())))
	h.Contents = Contents{}
	return h.encode()
}

// wrote is a complete head with the epoch that wrote it.
type wrote struct {
	epoch Epoch
	head  Head
}

// headOfMine returns the head that the batch follows, if this process wrote it in the same epoch. Reading it again is
// unnecessary, because every transaction compares the epoch and the head's revision.
func (s *Store) headOfMine(b Batch) (Head, bool) {
	last := s.last.Load()
	if last == nil || last.epoch != b.Epoch || last.head.Revision != b.After {
		return Head{}, false
	}
	return last.head, true
}

// headFor reads the head that the batch follows. Errors: ErrDeposed if the epoch no longer leads, ErrStale if the batch
// may not follow the head, or etcd's.
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

// fenced writes one transaction and returns its revision. Errors: ErrDeposed if the epoch no longer leads, ErrStale
// if the head does not have the given revision, or etcd's.
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

// check refuses a batch without an epoch, and a batch that names a record twice.
func (b *Batch) check() error {
	if b.Epoch.Key == "" || b.Epoch.Revision == 0 {
		return errors.New("commit without an epoch")
	}
	if twice, ok := repeated(*b); ok {
		return fmt.Errorf("the batch names %s twice", twice)
	}
	return nil
}

// txns encodes the operations of a batch, transaction by transaction, each with room for the head. It encodes only the
// records of the next transaction. After a full comparison a batch may have the records of many clusters. To encode all
// of them at once would need much memory.
type txns struct {
	store *Store
	batch Batch
	// Known after the last transaction:
	contents Contents // Contents after the batch
	refused  TooLargeError
	err      error // why the batch ended early
}

// each yields the operations of every transaction, in order.
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

// ops yields every operation, puts before deletes, with an upper bound of its size in bytes.
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

// count adds a put record to contents.
func (t *txns) count(record model.Record, path string, value []byte) {
	if !t.contents.Known() {
		return
	}
	hash := model.HashOf(value)
	if t.contents.Replace(path, t.batch.Was[record.Meta().Key], hash); hash != record.Meta().Hash {
		// Later batches would subtract the writer's hash of the record, so the Contents would be wrong. They are left
		// out, since a fault in the encoding must not stop the whole fleet.
		t.store.log.Error("a record's hash is not that of its encoded bytes: the head is written without counts and digests",
			slog.String("record", record.Meta().Key.String()))
		t.contents = Contents{}
	}
}

func sizeOf(key string, value []byte) int { return len(key) + len(value) + opBytes }

// repeated returns a record that the batch names twice. etcd refuses two puts, or a put and a delete, of one key in a
// transaction. In two transactions the later operation would win.
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

// opBytes bounds the size of an encoded operation without its key and value. fenceRoom bounds the size of the fence and
// the head's key.
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
