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

var errGap = errors.New("there is a gap in what was read")

// Problem is a stored value that does not decode.
type Problem struct {
	Path string // below records/
	Err  error
	Kept bool // an older version that did decode stands in the snapshot; else the record is missing there
}

// String says what is wrong and what holds meanwhile.
func (p Problem) String() string {
	if p.Kept {
		return fmt.Sprintf("records/%s: %v (the last good version stands)", p.Path, p.Err)
	}
	return fmt.Sprintf("records/%s: %v (there is no version that decodes)", p.Path, p.Err)
}

// fold is the loop's state and rules: what was read goes in, changes come out. It has no clock and no socket, and is
// owned by the loop.
type fold struct {
	base      *Snapshot           // all that was complete, with last good versions
	published bool                // base was given out
	staged    map[string]kv.Value // by path: read since, and not known to be complete, or of a kind that is held
	bad       map[string]error    // by path: what does not decode in the last complete state
	// unknown are the records of kinds that this build does not know, by path: they are no problem of this replica's.
	unknown map[string]model.Unknown
	unread  map[string]model.Hash // by path: of bad and unknown, what is stored
	head    kv.Head               // the newest that was read

	stored    kv.Contents // what was read, kept change by change
	held      []Held      // of the last complete state: kinds that are not what its head says
	unchecked string      // why nobody knows whether there are any
}

func newFold() *fold {
	return &fold{base: Empty(), staged: map[string]kv.Value{}, bad: map[string]error{}, unknown: map[string]model.Unknown{},
		unread: map[string]model.Hash{}, stored: kv.NewContents()}
}

// load takes a whole list in place of all that was staged. The result is false where there is nothing to publish.
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

// follows tells whether an update can be the next one. Every head names the complete one before it: where that is not the
// one that was read, something between them was not, or this is another history with the same numbers.
func (f *fold) follows(u kv.Update) error {
	if u.Head == nil || u.Head.Err != nil || u.Head.Revision == 0 || u.Head.LastComplete == f.head.CompleteRevision() {
		return nil
	}
	return fmt.Errorf("%w: the head at revision %d follows the complete revision %d, %d was read", errGap,
		u.Head.Revision, u.Head.LastComplete, f.head.CompleteRevision())
}

// apply takes what one revision changed.
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

// hash is of what was read last at a path; the zero Hash: nothing is stored there.
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

// compare notes which kinds are not what a complete head says.
func (f *fold) compare(said kv.Contents) {
	f.held, f.unchecked = nil, unchecked(said)
	for _, kind := range f.stored.Differ(said) {
		f.held = append(f.held, Held{kind, said.Kind(kind).Count, f.stored.Kind(kind).Count})
	}
}

// withholds tells whether what is stored at a path stays out of the snapshot because of its kind. Before there is a snapshot what cannot be
// understood anyway is taken as it is: it may be what closes the replica for some proxies.
func (f *fold) withholds(path string) bool {
	kind, _, _ := strings.Cut(path, "/")
	i := slices.IndexFunc(f.held, func(h Held) bool { return h.Kind == kind })
	return i >= 0 && (f.published || f.held[i].known())
}

// complete makes a snapshot of what was staged, of the head at a place, but for kinds that are not what the head says. The first is given out only when no
// record is missing from it: a proxy would lose what it names.
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
	change.Committed = committed
	return change, true
}

// holds tells whether the value is the one that stands in base.
func (f *fold) holds(v kv.Value) bool {
	key, err := v.Key()
	if err != nil || v.Raw == nil {
		return false
	}
	old, ok := f.base.Get(key)
	return ok && old.Meta().Hash == v.Hash()
}

// problems lists what does not decode, by path.
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

func (f *fold) missing() []Problem {
	return slices.DeleteFunc(f.problems(), func(p Problem) bool { return p.Kept })
}
