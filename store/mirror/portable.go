package mirror

import (
	"fmt"
	"io"
	"time"

	"navarch.io/navarch/store/model"
)

// Write encodes the records of a snapshot for another process, in the form of the file on disk. The parameter saved is
// the time to write into the file. The function named of must not be nil. For each record, it returns the record to
// write in its place, under the same key. Errors are those of w, of this function, and of the encoding.
func Write(w io.Writer, s *Snapshot, saved time.Time, of func(model.Record) (model.Record, error)) error {
	return encodeSnapshot(w, diskHead{Revision: s.Revision(), Saved: saved.UTC()}, s, of)
}

// mostRecords is the largest number of records that Read accepts. etcd has no room for so many.
const mostRecords = 4 << 20

// Read decodes the output of Write. The bytes need not be trusted. The memory that Read needs grows with the bytes that
// exist, whatever lengths they claim. Errors: reading fails, the bytes are damaged or in a newer form (model.ErrNewer),
// or this build cannot decode a record.
func Read(r io.Reader) (*Snapshot, error) {
	head, s, err := readSnapshot(r)
	switch {
	case err != nil:
		return nil, err
	case head.Revision < 0:
		return nil, fmt.Errorf("revision %d", head.Revision)
	}
	return s, nil
}
