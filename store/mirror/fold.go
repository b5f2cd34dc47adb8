package mirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

var errGap = errors.New("updates of the store are missing")

// Problem is a stored value that does not decode.
type Problem struct {
	Path string // path of the record below records/
	Err  error  // reason; not nil
	Kept bool   // the snapshot has an older version that decoded; false: the snapshot lacks the record
}

// String returns the path, the error and its effect on the snapshot.
func (p Problem) String() string {
	if p.Kept {
		return fmt.Sprintf("records/%s: %v (the last good version stays in effect)", p.Path, p.Err)
	}
	return fmt.Sprintf("records/%s: %v (no version decodes: the record is missing)", p.Path, p.Err)
}

// fold is the state of the mirror's loop, which follows the store. A fold uses no clock and no socket. Its input is
// values from etcd, and its output is changes. The loop owns it.
type fold struct {
	base      *Snapshot           // the complete state, with the last good versions
	published bool                // base was published
	staged    map[string]kv.Value // by path: newer values, of an incomplete batch or of a held kind
	bad       map[string]error    // by path: decoding errors of the last complete state
	// unknown contains, by path, the records of kinds that this build does not know. They do not count as problems.
	unknown map[string]model.Unknown
	unread  map[string]model.Hash // by path: hashes of the stored values in bad and unknown
	head    kv.Head               // the newest head

	stored    kv.Contents // sums of all values that were read, updated with each change
	held      []Held      // kinds of the last complete state that contradict its head
	unchecked string      // reason for which held could not be computed; empty: held was computed
}

func newFold() *fold {
	return &fold{base: Empty(), staged: map[string]kv.Value{}, bad: map[string]error{}, unknown: map[string]model.Unknown{},
		unread: map[string]model.Hash{}, stored: kv.NewContents()}
}

// load replaces all staged values by those of a list, and returns the result of the method complete. The result is
// false if the list is not complete.
func (f *fold) load(state *kv.State) (Change, bool) {
	f.head, f.stored = state.Head, state.Contents.Clone()
	if !f.stored.Known() {
		f.stored = kv.ContentsOf(state.Values)
	}
	clear(f.staged)
	listed := make(map[string]bool, len(state.Values))
	for _, v := range state.Values {
		listed[v.Path] = true
		if _, bad := f.bad[v.Path]; bad || !f.holds(v) {
			f.staged[v.Path] = v
		}
	}
	for _, kind := range model.Kinds() {
		for r := range f.base.All(kind) {
			if path := r.Meta().Key.Path(); !listed[path] {
				f.staged[path] = kv.Value{Path: path}
			}
		}
	}
	for path := range f.bad {
		if !listed[path] {
			f.staged[path] = kv.Value{Path: path}
		}
	}
	for path := range f.unknown {
		if !listed[path] {
			f.staged[path] = kv.Value{Path: path}
		}
	}
	if state.Complete == 0 {
		return Change{}, false
	}
	return f.complete(state.Complete, time.Time{}, state.Head.Place, state.Said)
}

// follows returns an error if an update cannot be the next one. Every head names the complete head before it. If the
// named head differs from the last complete head that was read, updates are missing, or etcd has another history with
// the same revisions.
func (f *fold) follows(u kv.Update) error {
	if u.Head == nil || u.Head.Err != nil || u.Head.Revision == 0 || u.Head.LastComplete == f.head.CompleteRevision() {
		return nil
	}
	return fmt.Errorf("%w: the head at revision %d follows the complete revision %d, %d was read", errGap,
		u.Head.Revision, u.Head.LastComplete, f.head.CompleteRevision())
}

// apply stages the values of one revision. If the head of the update is complete, apply returns the result of the
// method complete. In all other cases it returns false.
func (f *fold) apply(u kv.Update) (Change, bool) {
	for _, v := range u.Values {
		v = v.Hashed()
		f.stored.Replace(v.Path, f.hash(v.Path), v.Hash())
		f.staged[v.Path] = v
	}
	if u.Head == nil {
		return Change{}, false
	}
	f.head = *u.Head
	if !f.head.Complete {
		return Change{}, false
	}
	return f.complete(f.head.Revision, f.head.Time, f.head.Place, f.head.Contents)
}

// hash returns the hash of the last value at a path, or the zero Hash if there is no value.
func (f *fold) hash(path string) model.Hash {
	if v, is := f.staged[path]; is {
		return v.Hash()
	}
	if hash, is := f.unread[path]; is {
		return hash
	}
	if key, err := model.ParsePath(path); err == nil {
		if r, is := f.base.Get(key); is {
			return r.Meta().Hash
		}
	}
	return model.Hash{}
}

// compare computes held and unchecked from the Contents in a complete head.
func (f *fold) compare(said kv.Contents) {
	f.held, f.unchecked = nil, unchecked(said)
	for _, kind := range f.stored.Differ(said) {
		f.held = append(f.held, Held{kind, said.Kind(kind).Count, f.stored.Kind(kind).Count})
	}
}

// withholds reports whether the value at a path stays out of the snapshot because its kind is held. Before the first
// snapshot, records of unknown kinds are not withheld, because they may forbid to serve some proxies.
func (f *fold) withholds(path string) bool {
	kind, _, _ := strings.Cut(path, "/")
	i := slices.IndexFunc(f.held, func(h Held) bool { return h.Kind == kind })
	return i >= 0 && (f.published || f.held[i].known())
}

// complete makes a snapshot at the given revision from the staged values, except those of held kinds. The first
// snapshot waits until every record decodes and no known kind is held, because a proxy would lose the resources of a
// missing record. Until then the result is false.
func (f *fold) complete(revision int64, committed time.Time, place kv.Place, said kv.Contents) (Change, bool) {
	f.compare(said)
	var puts []model.Record
	var deletes []model.Key
	for path, v := range f.staged {
		if f.withholds(path) {
			continue
		}
		delete(f.staged, path)
		delete(f.bad, path)
		delete(f.unknown, path)
		delete(f.unread, path)
		if v.Raw == nil {
			if key, err := v.Key(); err == nil {
				deletes = append(deletes, key)
			}
			continue
		}
		if f.holds(v) {
			continue
		}
		record, err := v.Record()
		if errors.Is(err, model.ErrUnknownKind) {
			f.unknown[path], f.unread[path] = model.ReadUnknown(path, v.Raw), v.Hash()
			continue
		}
		if err != nil {
			f.bad[path], f.unread[path] = err, v.Hash()
			continue
		}
		puts = append(puts, record)
	}
	change := f.base.Apply(revision, puts, deletes)
	f.base = change.New
	if place.Known() {
		f.base.place = place
	}
	f.base.unknown = slices.SortedFunc(maps.Values(f.unknown), func(a, b model.Unknown) int { return strings.Compare(a.Path, b.Path) })
	if !f.published {
		if len(f.missing()) > 0 || slices.ContainsFunc(f.held, Held.known) {
			return Change{}, false
		}
		f.published = true
		return Diff(Empty(), f.base), true
	}
	if change.Committed = committed; !committed.IsZero() {
		in := &model.Span{First: revision, Last: revision, Since: committed}
		for i := range change.Edits {
			change.Edits[i].In = in
		}
	}
	return change, true
}

// holds reports whether base has the record with the content of the value.
func (f *fold) holds(v kv.Value) bool {
	key, err := v.Key()
	if err != nil || v.Raw == nil {
		return false
	}
	old, ok := f.base.Get(key)
	return ok && old.Meta().Hash == v.Hash()
}

// problems lists the values that do not decode, by path.
func (f *fold) problems() []Problem {
	all := make([]Problem, 0, len(f.bad))
	for path, err := range f.bad {
		p := Problem{Path: path, Err: err}
		if key, err := model.ParsePath(path); err == nil {
			_, p.Kept = f.base.Get(key)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// missing lists the values without any version that decodes, by path.
func (f *fold) missing() []Problem {
	return slices.DeleteFunc(f.problems(), func(p Problem) bool { return p.Kept })
}
