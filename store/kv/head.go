package kv

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// Epoch identifies one term of leadership, by the election key and its creation revision. Each write of a leader is a
// transaction that fails unless this key still exists.
type Epoch struct {
	Key      string // the full etcd key
	Revision int64
}

// Head is the record that every transaction of a batch writes. The last transaction sets Complete. Only then do the
// stored records form a complete state. An incomplete head has the Place of the last complete state, and no Contents.
// An empty store, or one whose head was deleted, has the zero Head.
type Head struct {
	Revision     int64     // etcd's modification revision of the head; 0: there is no head
	Epoch        int64     // Epoch.Revision of the leader that wrote the head
	Seq          uint64    // number of the batch in its term
	Complete     bool      // the last transaction of the batch wrote the head
	LastComplete int64     // the newest complete revision before this head; 0: there was none
	Time         time.Time // time of the write by the leader's clock, to milliseconds
	Contents     Contents  // counts and digests of all records as the writer knows them, if Complete; zero: unknown
	Place        Place     // position of the state at CompleteRevision in the sequence of states
	Err          error     // if not nil, the stored value does not decode, and of the other fields only Revision is set
}

// CompleteRevision returns the newest revision with a complete state. It returns 0 if no state was complete yet, or if
// the head does not decode.
func (h Head) CompleteRevision() int64 {
	if h.Complete {
		return h.Revision
	}
	return h.LastComplete
}

func (h Head) encode() ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(&model.HeadValue{
		Schema: model.Schema, Epoch: h.Epoch, Seq: h.Seq, Complete: h.Complete, LastComplete: h.LastComplete, Written: h.Time.UnixMilli(),
		Contents: h.Contents.value(), Place: h.Place.value(),
	})
}

// decodeHead decodes the value of the head that was written at revision. Its error is in Head.Err.
func decodeHead(b []byte, revision int64) Head {
	var v model.HeadValue
	err := proto.Unmarshal(b, &v)
	if err == nil {
		err = model.CheckSchema(v.Schema)
	}
	if err != nil {
		return Head{Revision: revision, Err: fmt.Errorf("the head at revision %d does not decode: %w", revision, err)}
	}
	return Head{Revision: revision, Epoch: v.Epoch, Seq: v.Seq, Complete: v.Complete, LastComplete: v.LastComplete,
		Time: time.UnixMilli(v.Written), Contents: contentsOf(v.Contents),
		Place: placeOf(v.Place)}
}
