package kv

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"navarch.io/navarch/store/model"
)

// What callers decide by.
var (
	// ErrDeposed: the election key is gone or another's. The batch's remaining transactions were not written.
	ErrDeposed = errors.New("deposed: the election key is no longer this leader's")
	// ErrStale: the head is not the one that the batch was made against, or is incomplete. Load, compare everything, and
	// commit what differs.
	ErrStale = errors.New("stale: the stored head is not the one that this batch was compared with")
	// ErrCompacted: etcd no longer has the revision that was asked for. Load again.
	ErrCompacted = errors.New("revision was compacted")
	// ErrRegressed: the store is at an older revision than was seen of it before: it was restored from a backup.
	ErrRegressed = errors.New("the store's revision went back")
	// ErrClusterChanged: the endpoints answer for another etcd cluster than before.
	ErrClusterChanged = errors.New("the etcd cluster is another one")
	// ErrForbidden: the user of this process has no right to it in etcd (Grants).
	ErrForbidden = errors.New("etcd does not permit it")
	// ErrFull: etcd has used up its quota and writes nothing (it goes on to read and to delete) until history is compacted, its files are
	// defragmented, and the alarm NOSPACE is disarmed; an embedded one does that itself (Maintain).
	ErrFull = errors.New("etcd has no space left")
)

// TooLargeError names the records that do not fit a transaction. Everything else in their batch was written; what was
// stored under their keys before still is.
type TooLargeError struct {
	Records []model.Key
	Sizes   []int // bytes of key and value
}

func (e *TooLargeError) Error() string {
	each := make([]string, len(e.Records))
	for i, key := range e.Records {
		each[i] = fmt.Sprintf("%v has %d bytes", key, e.Sizes[i])
	}
	return fmt.Sprintf("not written, at most %d bytes fit in etcd: %s", MaxRecordBytes, strings.Join(each, "; "))
}

// translate gives etcd's errors the names above.
func translate(err error) error {
	if errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("%w: %w", ErrCompacted, err)
	}
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
