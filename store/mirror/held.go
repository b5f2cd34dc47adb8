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

// Held is a kind whose stored records contradict the head (the leader's summary of all records), because a writer other
// than the leader changed them. The last good records of the kind stay in the snapshot. Other kinds are not affected.
type Held struct {
	Kind   string // first part of the records' paths; this build may not know the kind
	Said   uint64 // number of records according to the head
	Stored uint64 // number of stored records; it equals Said if only values were changed
}

// String returns the difference and its effect, for messages.
func (h Held) String() string {
	return fmt.Sprintf("records/%s: the %d stored records are not the %d that the leader wrote: another writer changed them. "+
		"The last good records of the kind, if any, are served until the leader has repaired the stored ones", h.Kind, h.Stored, h.Said)
}

func (h Held) known() bool { return known(h.Kind) }

// known reports whether this build knows a kind.
func known(kind string) bool {
	_, known := model.ParseKind(kind)
	return known
}

// errDiffers means that the values that were read contradict the head. The store is listed again, in case a read was
// wrong.
var errDiffers = errors.New("the stored records do not match the head")

// Pauses before Run lists the store again while the list contradicts the head.
const (
	firstRelist = time.Second
	maxRelist   = time.Minute
)

// unchecked returns the reason for which the records cannot be compared with the head, or "" if they can. The parameter
// said is the summary in the head.
func unchecked(said kv.Contents) string {
	switch {
	case said.Known():
		return ""
	case said.Algorithm() == 0:
		return "the head does not say what the records are: its leader is of an older build"
	}
	return fmt.Sprintf("the head says what the records are by algorithm %d, which this build does not know", said.Algorithm())
}

// listed stores the held kinds after the store was listed. The list shows that etcd itself has the difference.
func (f *follower) listed() {
	f.held = f.fold.held
	f.relist = min(2*f.relist, maxRelist)
	if len(f.held) == 0 {
		f.relist = firstRelist
	}
}

// watched stores the held kinds after an update of the watch. It returns errDiffers for a difference that no list has
// confirmed.
func (f *follower) watched() error {
	for _, h := range f.fold.held {
		if !slices.ContainsFunc(f.held, func(o Held) bool { return o.Kind == h.Kind }) {
			return fmt.Errorf("%w: %v", errDiffers, h)
		}
	}
	f.held = f.fold.held
	return nil
}

// logHeld logs the kinds that become held and those that no longer are, and calls the hook Held.
func (f *follower) logHeld(was, now []Held) {
	has := func(all []Held, kind string) bool {
		return slices.ContainsFunc(all, func(h Held) bool { return h.Kind == kind })
	}
	cause := func(h Held) string { // the cause of a sampled log line must be one of few texts
		if h.known() {
			return h.Kind
		}
		return "unknown kind"
	}
	for _, h := range now {
		if !has(was, h.Kind) {
			f.lines.Warn("the stored records of a kind are not those that the leader wrote: the last good records, if any, are served",
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
