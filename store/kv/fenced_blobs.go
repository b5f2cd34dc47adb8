package kv

import "context"

// FencedBlobs collects writes of blobs (stored values) into transactions. A transaction succeeds only while the epoch
// (term of leadership) lasts. A FencedBlobs is not safe for concurrent use.
type FencedBlobs struct {
	store  *Store
	epoch  Epoch
	most   int
	change BlobChange
	done   []func()
}

// FencedBlobs returns an empty collection. The parameter limit is the maximum number of blobs in one transaction, at
// least 1. The bytes of these blobs must fit in a transaction.
func (s *Store) FencedBlobs(epoch Epoch, limit int) *FencedBlobs {
	return &FencedBlobs{store: s, epoch: epoch, most: limit}
}

// Set collects the write of a blob, or its deletion if raw is empty. The transaction is sent by the call that collects
// the maximum number of blobs, or by Flush. Once the blob is stored, that call also calls the function done. The
// function done must not be nil, and raw must not change before done is called. A path must not be set twice in one
// transaction. Errors are those of ChangeFenced. They may concern any blob whose done was not called. After an error of
// Set, the next Set first writes the collected blobs. If that fails again, it does not collect its own blob.
func (b *FencedBlobs) Set(ctx context.Context, path string, raw []byte, done func()) error {
	if len(b.done) == b.most { // the last Flush has failed
		if err := b.Flush(ctx); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		b.change.Delete = append(b.change.Delete, path)
	} else {
		b.change.Put = append(b.change.Put, Blob{Path: path, Raw: raw})
	}
	if b.done = append(b.done, done); len(b.done) < b.most {
		return nil
	}
	return b.Flush(ctx)
}

// Flush writes all blobs that are not stored yet, and calls their done functions. Without such blobs it does nothing.
// Errors are those of ChangeFenced. After an error the blobs stay collected.
func (b *FencedBlobs) Flush(ctx context.Context) error {
	if len(b.done) == 0 {
		return nil
	}
	if _, err := b.store.ChangeFenced(ctx, b.epoch, b.change); err != nil {
		return err
	}
	for _, done := range b.done {
		done()
	}
	b.change, b.done = BlobChange{}, nil
	return nil
}
