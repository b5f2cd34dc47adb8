// Package files is the source that reads Kubernetes API objects from a folder of YAML and JSON files, and follows the
// folder's changes. The objects belong to the config cluster, except for those below a top-level folder cluster=NAME,
// which belong to the cluster NAME.
//
// Owns: the watch on the folder, the emitted state of each file. Reads: store/object, store/origin. Never: checks an
// object by a schema (store/normal does); treats a half-written file or a vanished folder as empty.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
)

// Config configures a Source. Only Dir is required.
type Config struct {
	Dir     string        // the folder, which must exist
	Cluster string        // name of the config cluster; the folder cluster=NAME with this NAME has objects of the config cluster too
	Quiet   time.Duration // length of the pause that ends a burst of changes; 0: 30 ms
	Grace   time.Duration // time for which objects must be missing before their removal is accepted; 0: 250 ms
	Rescan  time.Duration // interval of walks over the folder, for file systems that do not report changes; 0: 10 s
	Log     *slog.Logger  // nil: nothing is logged
}

// Stats counts the work of a Source since New. ReadChanges counts only Scans.
type Stats struct {
	Parsed uint64 // files parsed
	Scans  uint64 // walks over the whole folder
	Events uint64 // events emitted
}

// Source reads and follows one folder. One goroutine calls either Run or ReadChanges, but not both. Problems and Stats
// are safe for concurrent use.
type Source struct {
	Config
	reader *reader              // owned by Run or ReadChanges
	known  map[string]signature // owned by Run or ReadChanges

	problems              atomic.Pointer[[]object.Problem]
	parsed, scans, events atomic.Uint64
}

// New returns a Source. It reads no files; Run or ReadChanges does. Errors: Config.Dir does not exist (a misspelt name
// must not count as an empty folder), cannot be examined, or is not a folder.
func New(c Config) (*Source, error) {
	info, err := os.Stat(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("configuration folder: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("configuration folder %s: is no folder", c.Dir)
	}
	c.Quiet = cmp.Or(c.Quiet, 30*time.Millisecond)
	c.Grace = cmp.Or(c.Grace, 250*time.Millisecond)
	c.Rescan = cmp.Or(c.Rescan, 10*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{Config: c, reader: newReader(c.Cluster, c.Grace), known: map[string]signature{}}
	s.reader.skipped = func(location string) {
		c.Log.Info("JSON that is no object of Kubernetes is skipped: it has neither apiVersion nor kind", obs.KeyLocation, location)
	}
	return s, nil
}

// Problems returns all present problems of the folder, ordered by location. The problems are files, folders and
// documents that cannot be read, and objects that occur twice. An unreadable document is also emitted as a Broken
// event. The result is nil before the first reading, and if there are no problems. The result must not be changed.
// Problems is safe for concurrent use.
func (s *Source) Problems() []object.Problem {
	if p := s.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Stats returns the counts. It is safe for concurrent use.
func (s *Source) Stats() Stats {
	return Stats{Parsed: s.parsed.Load(), Scans: s.scans.Load(), Events: s.events.Load()}
}

// Read reads a folder once, for tools that work offline. It returns a Put for each object and a Broken for each
// document that cannot be read, then Synced, and the problems of the folder. An object that occurs twice has one Put.
// The parameter cluster is the name of the config cluster. The function skipped is called with the location of each
// JSON document that is not an object. It may be nil. Errors are those of New and ReadChanges.
func Read(dir, cluster string, skipped func(location string)) ([]object.Event, []object.Problem, error) {
	s, err := New(Config{Dir: dir, Cluster: cluster})
	if err != nil {
		return nil, nil, err
	}
	if skipped != nil {
		s.reader.skipped = skipped
	}
	events, err := s.ReadChanges()
	return events, s.Problems(), err
}

// Parse parses data, the content of one file with objects of the config cluster. If the name of the file ends with
// .json, the content is JSON, and for any other name it is YAML documents. The events have the order of the file. Each
// object is an event of op Put, and each document that cannot be read is an event of op Broken. The result skipped has
// the locations of JSON documents that are certainly not objects. Parse does not retain the slice data.
func Parse(name string, data []byte) (events []object.Event, skipped []string) {
	for _, d := range documents(name, data) {
		d.id.Origin = origin.New("", origin.Files)
		switch {
		case d.foreign:
			skipped = append(skipped, d.location)
		case d.object == nil:
			events = append(events, object.Event{Op: object.Broken, ID: d.id, Location: d.location, Problem: d.wrong})
		default:
			d.object.ID.Origin = d.id.Origin
			events = append(events, object.Event{Op: object.Put, ID: d.object.ID, Object: d.object, Location: d.location})
		}
	}
	return events, skipped
}

// ReadChanges reads the folder, and returns the changes since the last call, followed by Synced. The first call returns
// all objects. Callers that decide themselves when to read use ReadChanges instead of Run. All changes are accepted at
// once, including removals, for which Run waits for Grace. A file that is empty or has a broken document removes no
// objects. An error means that the folder itself cannot be read.
func (s *Source) ReadChanges() ([]object.Event, error) {
	readings, tree := s.scan(time.Now(), nil)
	if err := tree.unknown[""]; err != nil {
		return nil, fmt.Errorf("read configuration folder %s: %w", s.Dir, err)
	}
	events := s.reader.step(time.Now(), readings, true)
	s.faults(tree)
	problems := s.reader.problems()
	s.problems.Store(&problems)
	return append(events, object.Event{Op: object.Synced}), nil
}

// Run emits all objects of the folder with Synced, then every change. It blocks until ctx ends. It calls emit in its
// own goroutine, and passes the changes of one burst in one call. A burst ends with a pause of Quiet, or is cut after
// ten times Quiet. After a cut, each further burst is cut after twice Quiet until there is a pause. In this time, and
// for a very large burst, each call has changes of one namespace only. The function emit may keep the events. Errors:
// the folder cannot be watched, it cannot be read at the beginning, the watch ends, or ctx ends (the error of ctx).
func (s *Source) Run(ctx context.Context, emit func([]object.Event)) error {
	watch, err := newWatch(s.Dir)
	if err != nil {
		return fmt.Errorf("watch configuration folder %s: %w", s.Dir, err)
	}
	defer watch.close()
	tree := s.rescan(watch, time.Now(), emit, nil)
	if err := tree.unknown[""]; err != nil {
		return fmt.Errorf("read configuration folder %s: %w", s.Dir, err)
	}
	return s.follow(ctx, watch, emit)
}

// follow emits changes until ctx or the watch ends.
func (s *Source) follow(ctx context.Context, watch *watch, emit func([]object.Event)) error {
	ticker := time.NewTicker(s.Rescan)
	defer ticker.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	dirty := newDirty(s.Quiet)
	for {
		wake, armed := dirty.due()
		if again, ok := s.reader.due(); ok && (!armed || again.Before(wake)) {
			wake, armed = again, true
		}
		if timer.Stop(); armed {
			timer.Reset(time.Until(wake))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-watch.Events:
			if !ok {
				return errors.New("the watch on the configuration folder has ended")
			}
			dirty.note(time.Now(), s.Dir, e, s.reader.files)
		case err := <-watch.Errors:
			s.Log.Warn("configuration folder is read again as a whole", "dir", s.Dir, "error", err)
			dirty.all(time.Now())
		case <-ticker.C:
			s.rescan(watch, time.Now(), inParts(emit, dirty.goesOn()), dirty)
		case <-timer.C:
			s.wake(time.Now(), watch, dirty, emit)
			dirty.done(time.Now())
		}
	}
}

// wake reads the files that changed, and the files whose pending change is due.
func (s *Source) wake(now time.Time, watch *watch, dirty *dirty, emit func([]object.Event)) {
	paths, whole, endless := dirty.take(now, s.size)
	emit = inParts(emit, endless)
	if whole {
		s.rescan(watch, now, emit, dirty)
	}
	if again, ok := s.reader.due(); ok && !now.Before(again) {
		for path := range s.reader.pending {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	var readings []reading
	for _, path := range slices.Compact(paths) {
		readings = append(readings, read(s.Dir, path))
	}
	s.forward(s.reader.step(now, readings, false), emit)
}

// size returns the size of a file in bytes, given its path in the folder. The size is -1 if there is no such file.
func (s *Source) size(path string) int64 {
	info, err := os.Stat(filepath.Join(s.Dir, path))
	if err != nil {
		return -1
	}
	return info.Size()
}

// inParts returns a function that emits events. It is emit itself unless endless is true. If endless is true, changes
// that belong together cannot be recognised, and the returned function calls emit once for each part of byNamespace.
func inParts(emit func([]object.Event), endless bool) func([]object.Event) {
	if !endless {
		return emit
	}
	return func(events []object.Event) {
		for _, part := range byNamespace(events) {
			emit(part)
		}
	}
}

// partBytes is the largest size of the objects in one part of byNamespace. Only an object that is larger itself makes a
// larger part. The ingester needs some ten milliseconds of processor time for a part, before it handles other
// namespaces.
const partBytes = 64 << 10

// byNamespace divides events by cluster and namespace, so that endless edits in one namespace are not emitted
// together with changes of other namespaces. It also divides them by bytes, so that large edits do not delay changes
// of other namespaces.
func byNamespace(events []object.Event) (parts [][]object.Event) {
	type part struct{ at, bytes int }
	last := map[object.ID]part{}
	for _, e := range events {
		namespace, size := object.ID{Origin: e.ID.Origin, Namespace: e.ID.Namespace}, 0
		if e.Object != nil {
			size = len(e.Object.JSON)
		}
		p, known := last[namespace]
		if p.bytes += size; !known || p.bytes > partBytes {
			p = part{len(parts), size}
			parts = append(parts, nil)
		}
		parts[p.at] = append(parts[p.at], e)
		last[namespace] = p
	}
	return parts
}

// rescan walks the whole folder, renews the watches and emits the changes. It does not read the files in dirty, which
// wait to be read. Changed files beyond mostBytes (a limit of the total size) are added to dirty. If the parameter
// dirty is nil, the folder is read for the first time, as a whole.
func (s *Source) rescan(watch *watch, now time.Time, emit func([]object.Event), dirty *dirty) *tree {
	first := dirty == nil
	readings, tree := s.scan(now, dirty)
	watch.set(tree.dirs)
	events := s.reader.step(now, readings, first)
	s.faults(tree)
	if first {
		events = append(events, object.Event{Op: object.Synced})
	}
	s.forward(events, emit)
	return tree
}

// scan walks the folder, and reads the files that may have changed or vanished, except for files in dirty, which wait
// to be read. If the total size of the changed files exceeds mostBytes, scan adds some of them to dirty instead.
func (s *Source) scan(now time.Time, dirty *dirty) ([]reading, *tree) {
	s.scans.Add(1)
	t := walk(s.Dir)
	waiting, changed := map[string]time.Time{}, map[string]time.Time{}
	if dirty != nil {
		waiting = dirty.paths
	}
	for path, sig := range t.files {
		if _, waits := waiting[path]; !waits && s.known[path] != sig {
			changed[path] = now
		}
	}
	paths, left := slices.Sorted(maps.Keys(changed)), []string(nil)
	if dirty != nil {
		paths, left = divide(changed, now, len(changed), func(path string) int64 { return t.files[path].size })
		dirty.keep(now, left, changed)
	}
	var readings []reading
	for _, path := range paths {
		readings = append(readings, read(s.Dir, path))
	}
	for path, err := range t.irregular {
		readings = append(readings, reading{path: path, err: err})
	}
	for path := range s.reader.files {
		_, there := t.files[path]
		_, waits := waiting[path]
		if !there && !waits && !t.covers(path) && len(left) == 0 { // the files in left may have its objects
			readings = append(readings, reading{path: path, missing: true})
		}
	}
	s.known = maps.Clone(t.files)
	for path := range waiting {
		delete(s.known, path)
	}
	for _, l := range readings {
		if l.err != nil {
			delete(s.known, l.path) // the next walk tries again
		}
	}
	slices.SortFunc(readings, func(a, b reading) int { return cmp.Compare(a.path, b.path) })
	return readings, t
}

// faults stores the folders that a walk could not list, and drops faults that no longer exist.
func (s *Source) faults(t *tree) {
	for path := range s.reader.faults {
		if _, isFile := s.reader.files[path]; !isFile && t.unknown[path] == nil && t.irregular[path] == nil {
			if _, there := t.files[path]; !there {
				delete(s.reader.faults, path)
			}
		}
	}
	for dir, err := range t.unknown {
		s.reader.faults[dir] = fmt.Sprintf("folder cannot be read: %v; the objects read from it before stay in effect", err)
	}
}

// forward stores the problems and counts, and emits the events, if there are any.
func (s *Source) forward(events []object.Event, emit func([]object.Event)) {
	problems := s.reader.problems()
	s.problems.Store(&problems)
	s.parsed.Store(uint64(s.reader.parsed))
	s.events.Add(uint64(len(events)))
	if len(events) > 0 {
		emit(events)
	}
}
