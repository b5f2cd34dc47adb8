package mirror

import (
	"bytes"
	"os"

	"navarch.io/navarch/store/model"
)

// ReadDisk is the revision of the snapshot in a file.
func ReadDisk(path string) (int64, *Snapshot, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	head, s, err := readSnapshot(bytes.NewReader(raw))
	return head.Revision, s, err
}

// EncodeSnapshot and DecodeSnapshot are the file's content.
func EncodeSnapshot(s *Snapshot) ([]byte, error) {
	var b bytes.Buffer
	err := writeSnapshot(&b, diskHead{Mesh: "m", Cluster: 1, Revision: s.Revision()}, s)
	return b.Bytes(), err
}

func DecodeSnapshot(raw []byte) (*Snapshot, error) {
	_, s, err := readSnapshot(bytes.NewReader(raw))
	return s, err
}

// EncodeUnknown is EncodeSnapshot of a snapshot with records of kinds that this build does not know.
func EncodeUnknown(all []model.Unknown) ([]byte, error) {
	s := Empty().Apply(1, nil, nil).New
	s.unknown = all
	return EncodeSnapshot(s)
}
