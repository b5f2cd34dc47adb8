package kv

import "context"

// FencedBlobs collects writes of blobs under one epoch into transactions. One goroutine uses it.
type FencedBlobs struct {
	store  *Store
	epoch  Epoch
	most   int
	change BlobChange
	done   []func()
}

// FencedBlobs returns an empty collection. One transaction writes at most most blobs.
func (s *Store) FencedBlobs(epoch Epoch, most int) *FencedBlobs {
	return &FencedBlobs{store: s, epoch: epoch, most: most}
}

// Set writes a blob, or deletes it if raw is empty. Each path may be set once. done is called once the write is stored,
// by a later Set or by Flush. Errors are those of ChangeFenced; they may concern any blob whose done was not called.
func (b *FencedBlobs) Set(ctx context.Context, path string, raw []byte, done func()) error {
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

// Flush writes all blobs that are not stored yet. Errors are those of Set.
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
