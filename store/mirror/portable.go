package mirror

import (
	"fmt"
	"io"
	"time"

	"navarch.io/navarch/store/model"
)

// Write encodes the records of a snapshot for another process, in the form of the file on disk. The function `of`
// must not be nil. It returns the record that is written in place of its argument. Errors are those of w, of `of` and
// of the encoding.
func Write(w io.Writer, s *Snapshot, saved time.Time, of func(model.Record) (model.Record, error)) error {
	return encodeSnapshot(w, diskHead{Revision: s.Revision(), Saved: saved.UTC()}, s, of)
}

// mostRecords bounds the records of Read; etcd has room for fewer.
const mostRecords = 4 << 20

// Read decodes the form of Write, from untrusted bytes: its memory grows with the existing bytes. The error names the
// damage, or a record that this build cannot decode.
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
