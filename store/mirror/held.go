package mirror

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Held is a kind whose stored records are not those that the head says: somebody else than the leader changed them. The last good
// ones stand in the snapshot, other kinds go on.
type Held struct {
	Kind   string // the first part of the records' paths; it may be one that this build does not know
	Said   uint64 // how many records the head says there are
	Stored uint64 // how many are stored; the same number where values were changed
}

// String says what is wrong and what follows from it.
func (h Held) String() string {
	return fmt.Sprintf("records/%s: %d records are stored, and not the %d that the leader wrote: somebody else changed them. "+
		"The last good ones of the kind are served, where there are any, until the leader has put that right", h.Kind, h.Stored, h.Said)
}

func (h Held) known() bool { return known(h.Kind) }

// known says whether this build knows a kind.
func known(kind string) bool {
	_, known := model.ParseKind(kind)
	return known
}

// errDiffers: what was read is not what the head says. It is listed again, in case it was not read well.
var errDiffers = errors.New("the stored records are not what the head says")

// How long the loop waits before it lists again while what it listed is not what the head says.
const (
	firstRelist = time.Second
	maxRelist   = time.Minute
)

// unchecked is why what was read cannot be compared with the head; empty: it was compared.
func unchecked(said kv.Contents) string {
	switch {
	case said.Known():
		return ""
	case said.Algorithm() == 0:
		return "the head does not say what the records are: its leader is of an older build"
	}
	return fmt.Sprintf("the head says what the records are by algorithm %d, which this build does not know", said.Algorithm())
}

// listed takes what a list says of the records: what differs in it differs in etcd.
func (f *follower) listed() {
	f.held = f.fold.held
	f.relist = min(2*f.relist, maxRelist)
	if len(f.held) == 0 {
		f.relist = firstRelist
	}
}

// watched takes what the watch says of the records. A kind that differs of which no list said so is listed first.
func (f *follower) watched() error {
	for _, h := range f.fold.held {
		if !slices.ContainsFunc(f.held, func(o Held) bool { return o.Kind == h.Kind }) {
			return fmt.Errorf("%w: %v", errDiffers, h)
		}
	}
	f.held = f.fold.held
	return nil
}

// logHeld says which kinds are held from now on, and which are not any more.
func (f *follower) logHeld(was, now []Held) {
	has := func(all []Held, kind string) bool {
		return slices.ContainsFunc(all, func(h Held) bool { return h.Kind == kind })
	}
	cause := func(h Held) string { // one of a few
		if h.known() {
			return h.Kind
		}
		return "unknown kind"
	}
	for _, h := range now {
		if !has(was, h.Kind) {
			f.lines.Warn("the stored records of a kind are not those that the leader wrote: the last good ones are served, where there are any",
				cause(h),
				obs.KeyKind, h.Kind, obs.KeySaid, h.Said, obs.KeyRecords, h.Stored)
		}
	}
	for _, h := range was {
		if !has(now, h.Kind) {
			f.lines.Warn("the stored records of a kind agree with what the leader wrote again", cause(h), obs.KeyKind, h.Kind)
		}
	}
	if f.cfg.Hooks.Held != nil && !slices.Equal(was, now) {
		f.hooks.Call(func() { f.cfg.Hooks.Held(now) })
	}
}
