package files

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch is the operating system's watch on every folder below the root.
type watch struct {
	*fsnotify.Watcher
	root string
}

func newWatch(root string) (*watch, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(root); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &watch{w, root}, nil
}

func (w *watch) close() { _ = w.Close() } // an error has no effect

// set watches exactly these folders. A watched folder that is itself a symbolic link, unless it is the root, is added
// again, because its target may have changed.
func (w *watch) set(dirs []string) {
	want := map[string]bool{}
	for _, dir := range dirs {
		want[dir] = true
	}
	for _, dir := range w.WatchList() {
		info, err := os.Lstat(dir)
		link := err == nil && info.Mode()&fs.ModeSymlink != 0
		if !want[dir] || link && dir != w.root {
			_ = w.Remove(dir) // the folder may be gone already
		}
	}
	for dir := range want {
		_ = w.Add(dir) // a folder that cannot be watched is still walked every Rescan
	}
}

// dirty collects the changed paths of one burst. A burst ends after a pause of quiet. A burst without a pause is cut
// after ten times quiet, and then after each twice quiet until there is a pause. This bounds the delay of other changes
// by endless edits.
type dirty struct {
	quiet       time.Duration
	paths       map[string]bool
	whole       bool // folders or links changed: walk everything
	first, last time.Time
	cut         time.Time // time at which the previous burst was cut and emitted; zero: it ended with a pause
}

func newDirty(quiet time.Duration) *dirty { return &dirty{quiet: quiet, paths: map[string]bool{}} }

// note adds one event of the watch.
func (d *dirty) note(now time.Time, root string, e fsnotify.Event, known map[string]*file) {
	rel, err := filepath.Rel(root, e.Name)
	if err != nil {
		return
	}
	base := filepath.Base(rel)
	switch {
	case strings.HasPrefix(base, ".."): // ..data of a mounted ConfigMap: all its links have changed
		d.all(now)
	case strings.HasPrefix(base, ".") && base != ".":
	case wanted(rel):
		d.touch(now)
		d.paths[rel] = true
		if info, err := os.Stat(e.Name); err == nil && info.IsDir() {
			d.whole = true
		}
	default:
		info, err := os.Stat(e.Name)
		if err == nil && info.IsDir() || err != nil && folderOf(rel, known) {
			d.all(now)
		}
	}
}

// folderOf reports whether a vanished path was a folder with known files.
func folderOf(rel string, known map[string]*file) bool {
	for path := range known {
		if rel == "." || strings.HasPrefix(path, rel+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

func (d *dirty) all(now time.Time) {
	d.touch(now)
	d.whole = true
}

func (d *dirty) touch(now time.Time) {
	if d.first.IsZero() {
		d.first = now
		if now.Sub(d.cut) >= d.quiet { // the previous burst has ended meanwhile
			d.cut = time.Time{}
		}
	}
	d.last = now
}

// due returns the time at which the burst ends or is cut; false: there is no burst.
func (d *dirty) due() (time.Time, bool) {
	if d.first.IsZero() {
		return time.Time{}, false
	}
	due, _ := d.end()
	return due, true
}

// goesOn reports whether the previous burst was cut, and there has been no pause since.
func (d *dirty) goesOn() bool { return !d.cut.IsZero() && !d.first.IsZero() }

func (d *dirty) end() (at time.Time, cut bool) {
	longest := 10 * d.quiet
	if !d.cut.IsZero() {
		longest = 2 * d.quiet
	}
	at = d.last.Add(d.quiet)
	if limit := d.first.Add(longest); limit.Before(at) {
		return limit, true
	}
	return at, false
}

// most bounds the files that are read at once during changes without a pause, since other changes wait meanwhile.
const most = 16

// take returns the burst if it has ended or is cut, and starts the next burst. endless reports that this burst and the
// previous burst were both cut, so that related changes cannot be recognised. Then folders alternate in paths, and
// paths beyond most stay for the next burst, which is due at once.
func (d *dirty) take(now time.Time) (paths []string, whole, endless bool) {
	if d.first.IsZero() {
		return nil, false, false
	}
	at, cut := d.end()
	if now.Before(at) {
		return nil, false, false
	}
	whole, endless = d.whole, cut && !d.cut.IsZero()
	paths = slices.Sorted(maps.Keys(d.paths))
	var left []string
	if endless && len(paths) > most {
		paths = inTurn(paths)
		paths, left = paths[:most], paths[most:]
	}
	if *d = *newDirty(d.quiet); cut {
		d.cut = now
	}
	for _, path := range left {
		d.paths[path] = true
		d.first, d.last = now.Add(-2*d.quiet), now
	}
	return paths, whole, endless
}

// inTurn orders sorted paths so that folders alternate.
func inTurn(paths []string) []string {
	var folders []string
	of := map[string][]string{}
	for _, path := range paths {
		folder := filepath.Dir(path)
		if of[folder] == nil {
			folders = append(folders, folder)
		}
		of[folder] = append(of[folder], path)
	}
	ordered := make([]string, 0, len(paths))
	for turn := 0; len(ordered) < len(paths); turn++ {
		for _, folder := range folders {
			if turn < len(of[folder]) {
				ordered = append(ordered, of[folder][turn])
			}
		}
	}
	return ordered
}

// done is called after the burst of take was read and emitted. Changes during that time are noted only afterwards, so
// that time does not count as a pause.
func (d *dirty) done(now time.Time) {
	if !d.cut.IsZero() {
		d.cut = now
	}
}
