package kv

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// Epoch is one term of leadership: the election key and its creation revision. It fences every write.
type Epoch struct {
	Key      string // the full etcd key
	Revision int64
}

// Head states whether the records beside it are a complete state. An empty store has the zero Head.
type Head struct {
	Revision     int64  // etcd's modification revision of the head; 0: there is no head
	Epoch        int64  // Epoch.Revision of the leader that wrote it
	Seq          uint64 // number of the batch
	Complete     bool
	LastComplete int64     // the newest complete revision before this head; 0: there was none
	Time         time.Time // of the write, by the leader's clock, in milliseconds
	Contents     Contents  // of a complete head: the records as its writer knows them
	Place        Place     // of the state at CompleteRevision
	Err          error     // why the stored value does not decode; such a head is incomplete, and only Revision is set
}

// CompleteRevision returns the newest revision with a complete state; 0 if there was none yet.
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

// decodeHead decodes the value of the head that was modified at revision. An error is in Head.Err.
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
