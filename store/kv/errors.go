package kv

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"navarch.io/navarch/store/model"
)

// Errors that callers distinguish (errors.Is).
var (
	// ErrDeposed: the election key is gone or belongs to another process. The present transaction and those after it
	// were not written.
	ErrDeposed = errors.New("deposed: the election key is no longer this leader's")
	// ErrStale: the head (the key that states whether the records are complete) is incomplete, or the batch was made
	// against another head. The caller must load, compare everything, and commit the differences.
	ErrStale = errors.New("stale: the stored head is not the one that this batch was compared with")
	// ErrCompacted: etcd has compacted the requested revision. The caller must load again.
	ErrCompacted = errors.New("revision was compacted")
	// ErrRegressed: the store is at an older revision than one that was read before, as after a restore from a backup.
	ErrRegressed = errors.New("the store's revision went back")
	// ErrClusterChanged: the endpoints belong to another etcd cluster than before.
	ErrClusterChanged = errors.New("the etcd cluster is another one")
	// ErrForbidden: the etcd user of this process lacks the permission (Grants).
	ErrForbidden = errors.New("etcd does not permit it")
	// ErrFull: etcd has the alarm NOSPACE, because its quota is used up, or the disk of an embedded etcd is full. etcd
	// refuses writes, but still serves reads and deletes. It writes again once history is compacted, the files are
	// defragmented and the alarm is disarmed, as Maintain does for an embedded etcd.
	ErrFull = errors.New("etcd has no space left")
)

// TooLargeError names the records that do not fit into a transaction. All other records of their batch were written.
// The named records keep their previous values in the store.
type TooLargeError struct {
	Records []model.Key
	Sizes   []int // bytes of key and value, plus 32 for their encoding, in the order of Records
}

// Error names each record with its size.
func (e *TooLargeError) Error() string {
	each := make([]string, len(e.Records))
	for i, key := range e.Records {
		each[i] = fmt.Sprintf("%v has %d bytes", key, e.Sizes[i])
	}
	return fmt.Sprintf("not written, at most %d bytes fit in etcd: %s", MaxRecordBytes, strings.Join(each, "; "))
}

// translate wraps ErrCompacted, ErrForbidden or ErrFull around the corresponding error of etcd. Other errors are
// returned unchanged.
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
