package kv

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// Epoch is one term of leadership: the election key and the revision it was created at. It is the fence of every write.
type Epoch struct {
	Key      string // the whole etcd key
	Revision int64
}

// Head says whether the records beside it are a whole state. The zero Head is that of an empty store: there is none.
type Head struct {
	Revision     int64 // etcd's modification revision of the head; 0: there is no head
	Epoch        int64 // Epoch.Revision of the leader that wrote it
	Seq          uint64
	Complete     bool
	LastComplete int64     // the newest complete revision before this head; 0: none
	Time         time.Time // when it was written, by the leader's clock, milliseconds
	Contents     Contents  // of a complete head: what the records are, as who wrote it knows
	Place        Place     // of the state at CompleteRevision
	Err          error     // why the stored value does not decode; such a head is incomplete and only Revision is known
}

// CompleteRevision is the newest revision at which the records are whole, 0 where there was none yet.
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

// decodeHead reads the value of the head that was modified at revision.
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
