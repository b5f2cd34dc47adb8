package ingest

import (
	"bytes"
	"fmt"
	"testing"

	"navarch.io/navarch/store/object"
)

// counter is a desk whose writes end on the test's request; events wait meanwhile.
type counter struct {
	*desk
	flying *Write
	waits  int // Wait effects so far
	after  int64
}

// newCounter leads, with nothing stored, and one write under way that has nothing to do with the test.
func newCounter(t *testing.T) *counter {
	c := &counter{desk: newDesk(t), after: 1}
	c.desk.want(Objects{synced})
	c.desk.want(Gained{Epoch: c.epoch}, "load")
	c.emit(Objects{put(t, in("warm", vs("up", "1s")))})
	if c.flying == nil {
		t.Fatal("nothing is written")
	}
	return c
}

func (c *counter) take(effects []Effect) {
	c.t.Helper()
	for _, effect := range effects {
		switch e := effect.(type) {
		case Write:
			if c.flying != nil {
				c.t.Fatal("two writes at once")
			}
			c.flying = &e
		case Wait:
			c.waits++
		default:
			c.t.Fatalf("%T", e)
		}
	}
}

func (c *counter) emit(emits ...Objects) {
	c.t.Helper()
	var all Emits
	for _, e := range emits {
		all = append(all, Emit{Objects: e})
	}
	c.take(c.s.Step(all))
}

// done ends the write in progress, and returns the next one.
func (c *counter) done() *Write {
	c.t.Helper()
	w := c.flying
	c.flying = nil
	c.commit(w.Batch)
	c.after++
	c.take(c.s.Step(Written{Epoch: w.Batch.Epoch, After: c.after}))
	return c.flying
}

// keys returns the namespace/name of each record in a batch.
func keys(w *Write) map[string]bool {
	all := map[string]bool{}
	if w != nil {
		for _, r := range w.Batch.Puts {
			all[r.Meta().Key.Namespace+"/"+r.Meta().Key.Name] = true
		}
		for _, k := range w.Batch.Deletes {
			all[k.Namespace+"/"+k.Name] = true
		}
	}
	return all
}

// many are n VirtualServices of a namespace in emits of so many.
func many(t *testing.T, namespace string, n, each int) (emits []Objects) {
	first := put(t, in(namespace, vs("v0000", "1s")))
	for i := range n {
		o := *first.Object
		o.ID.Name = fmt.Sprintf("v%04d", i)
		o.JSON = bytes.ReplaceAll(o.JSON, []byte("v0000"), []byte(o.ID.Name))
		if i%each == 0 {
			emits = append(emits, nil)
		}
		emits[len(emits)-1] = append(emits[len(emits)-1], object.Event{Op: object.Put, ID: o.ID, Object: &o})
	}
	return emits
}
