package kv

import "context"

// FencedBlobs writes many blobs under one epoch, some in each transaction. It belongs to one goroutine.
type FencedBlobs struct {
	store  *Store
	epoch  Epoch
	most   int
	change BlobChange
	done   []func()
}

// FencedBlobs begins such writing; most is how many blobs one transaction writes.
func (s *Store) FencedBlobs(epoch Epoch, most int) *FencedBlobs {
	return &FencedBlobs{store: s, epoch: epoch, most: most}
}

// Set writes a blob, or deletes it where raw is empty; each path may be set once. done is called when that is stored: by a later Set, or by Flush.
// Errors are those of ChangeFenced, of any blob that was set before and is not known to be stored.
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

// Flush writes what was set and is not stored yet; errors as of Set.
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
