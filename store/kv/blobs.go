package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrConflict means that a condition of a change does not hold, because another process wrote first. Nothing was
// written. The caller must read the blobs again.
var ErrConflict = errors.New("the condition of the write does not hold: another process wrote first")

// Blob is one stored value that this package does not decode.
type Blob struct {
	Path     string // path without the prefix of mesh and revision; begins with the path of a Family
	Raw      []byte // in results not nil, even if empty
	Revision int64  // etcd's modification revision
}

// BlobChange is one atomic transaction on blobs.
type BlobChange struct {
	If     map[string]int64 // path -> required modification revision; 0: the blob must be absent
	Put    []Blob           // blobs to write; Revision is ignored
	Delete []string         // paths to delete; an absent blob is not an error
	// Unchanged maps a folder to a revision. The change fails with ErrConflict if a present key of the folder was
	// written after that revision. Deletions are not noticed. Only ChangeFenced supports Unchanged, and ChangeBlobs
	// ignores it.
	Unchanged map[string]int64
}

// blobFamilies are the folders that the functions of this file accept. Blobs also accepts fleetFamilies.
var blobFamilies = []string{"allowances/", "certificates/", "clocks/", "keys/", "sealing/"}

func (s *Store) blobKey(path string) (string, error) {
	for _, family := range blobFamilies {
		if strings.HasPrefix(path, family) {
			return s.key(path), nil
		}
	}
	return "", fmt.Errorf("blob %q: want a path below one of %v", path, blobFamilies)
}

// Blobs lists a folder in order of paths, at one revision, and returns that revision. The list of an empty folder is
// nil. The folder must end with a slash and be of an allowed family (blobFamilies, fleetFamilies). The read is
// linearizable. If since is above 0, blobs that were last written at this revision or before are left out. Errors: the
// folder is not of an allowed family, ErrCompacted if etcd compacts the revision between two pages, ErrForbidden, or
// etcd does not answer.
func (s *Store) Blobs(ctx context.Context, folder string, since int64) ([]Blob, int64, error) {
	from, err := s.blobKey(folder)
	if err != nil {
		from, err = s.fleetKey(folder) // both families are read in the same way
	}
	if err != nil {
		return nil, 0, err
	}
	var blobs []Blob
	at, err := s.eachOf(ctx, folder, from, pageSize, since, func(b Blob) error { blobs = append(blobs, b); return nil })
	if err != nil {
		return nil, 0, err
	}
	return blobs, at, nil
}

// eachOf calls f with every blob of a folder, and returns the revision of the list. The parameter from is the first key
// of the folder. eachOf reads page by page, with limit blobs in a page. The parameter since is that of Blobs.
func (s *Store) eachOf(ctx context.Context, folder, from string, limit, since int64, f func(Blob) error) (int64, error) {
	for end, at := after(from), int64(0); ; {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(at)}
		if since > 0 {
			opts = append(opts, clientv3.WithMinModRev(since+1))
		}
		page, err := s.client.Get(ctx, from, opts...)
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", folder, err)
		}
		if at == 0 {
			at = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			if err := f(Blob{Path: s.path(string(kv.Key)), Raw: orEmpty(kv.Value), Revision: kv.ModRevision}); err != nil {
				return 0, err
			}
		}
		if !page.More || len(page.Kvs) == 0 {
			return at, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// eachPage is the number of blobs in one request of EachBlob. It is small because blobs may be large.
const eachPage = 16

// EachBlob calls f with every blob of a folder, in order of paths and at one revision. It reads page by page, for
// folders that are too large for memory. It stops at the first error of f and returns this error. Other errors are
// those of Blobs. The folder must be in blobFamilies: allowances/, certificates/, clocks/, keys/ or sealing/.
func (s *Store) EachBlob(ctx context.Context, folder string, f func(Blob) error) error {
	from, err := s.blobKey(folder)
	if err != nil {
		return err
	}
	_, err = s.eachOf(ctx, folder, from, eachPage, 0, f)
	return err
}

// ChangeBlobs writes a change in one transaction and returns the revision of the write. Errors: a path is outside
// blobFamilies, a blob exceeds MaxRecordBytes, or ErrConflict if a condition does not hold. After these errors nothing
// was written. After an error of etcd the outcome is unknown.
func (s *Store) ChangeBlobs(ctx context.Context, c BlobChange) (int64, error) {
	var conditions []clientv3.Cmp
	for path, revision := range c.If {
		key, err := s.blobKey(path)
		if err != nil {
			return 0, err
		}
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
	}
	var ops []clientv3.Op
	for _, blob := range c.Put {
		key, err := s.blobKey(blob.Path)
		if err != nil {
			return 0, err
		}
		if size := len(key) + len(blob.Raw) + opBytes; size > MaxRecordBytes {
			return 0, fmt.Errorf("blob %s: %d bytes, at most %d fit in etcd", blob.Path, size, MaxRecordBytes)
		}
		ops = append(ops, clientv3.OpPut(key, string(blob.Raw)))
	}
	for _, path := range c.Delete {
		key, err := s.blobKey(path)
		if err != nil {
			return 0, err
		}
		ops = append(ops, clientv3.OpDelete(key))
	}
	resp, err := s.client.Txn(ctx).If(conditions...).Then(ops...).Commit()
	if err != nil {
		return 0, fmt.Errorf("change %d blobs: %w", len(ops), err)
	}
	if !resp.Succeeded {
		return 0, ErrConflict
	}
	return resp.Header.Revision, nil
}

// DropBlobs deletes the blobs in the range of paths [from, to), and returns their number. Errors: a path is outside
// blobFamilies, or an error of etcd.
func (s *Store) DropBlobs(ctx context.Context, from, to string) (int64, error) {
	first, err := s.blobKey(from)
	if err != nil {
		return 0, err
	}
	end, err := s.blobKey(to)
	if err != nil {
		return 0, err
	}
	resp, err := s.client.Delete(ctx, first, clientv3.WithRange(end))
	if err != nil {
		return 0, fmt.Errorf("delete %s up to %s: %w", from, to, err)
	}
	return resp.Deleted, nil
}

// BlobsChanged returns a channel that gets a value after writes below a folder. It also gets a value whenever the watch
// starts or starts again. Several writes may cause one value, so the receiver must read the folder again. After ctx
// ends, no values follow, but the channel is not closed. An error means that the folder is outside blobFamilies.
func (s *Store) BlobsChanged(ctx context.Context, folder string) (<-chan struct{}, error) {
	from, err := s.blobKey(folder)
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
			for resp := range s.client.Watch(watching, from, clientv3.WithRange(after(from)), clientv3.WithCreatedNotify()) {
				if resp.Err() != nil {
					break
				}
				select {
				case changed <- struct{}{}:
				default:
				}
			}
			cancel()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return changed, nil
}
