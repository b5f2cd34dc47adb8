package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

func (w *watch) close() { _ = w.Close() } // nothing is lost by it

// set watches these folders and no others. A folder behind a link is watched anew: the link may lead elsewhere now.
func (w *watch) set(dirs []string) {
	want := map[string]bool{}
	for _, dir := range dirs {
		want[dir] = true
	}
	for _, dir := range w.WatchList() {
		info, err := os.Lstat(dir)
		link := err == nil && info.Mode()&fs.ModeSymlink != 0
		if !want[dir] || link && dir != w.root {
			_ = w.Remove(dir) // gone by itself already
		}
	}
	for dir := range want {
		_ = w.Add(dir) // a folder that cannot be watched is still walked every Rescan
	}
}

// dirty collects what changed during one burst.
type dirty struct {
	quiet       time.Duration
	paths       map[string]bool
	whole       bool // something about folders or links: walk
	first, last time.Time
}

func newDirty(quiet time.Duration) *dirty { return &dirty{quiet: quiet, paths: map[string]bool{}} }

// note takes one event of the watch.
func (d *dirty) note(now time.Time, root string, e fsnotify.Event, known map[string]*file) {
	rel, err := filepath.Rel(root, e.Name)
	if err != nil {
		return
	}
	base := filepath.Base(rel)
	switch {
	case strings.HasPrefix(base, ".."): // ..data of a mounted ConfigMap: all links lead elsewhere
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

// folderOf says whether a path that is gone was a folder that files were read from.
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
	}
	d.last = now
}

// due is when the burst is over: quiet since its last event, but ten times that after its first at the latest.
func (d *dirty) due() (time.Time, bool) {
	if d.first.IsZero() {
		return time.Time{}, false
	}
	due := d.last.Add(d.quiet)
	if limit := d.first.Add(10 * d.quiet); limit.Before(due) {
		due = limit
	}
	return due, true
}

// take hands the burst over if it is over, and starts the next.
func (d *dirty) take(now time.Time) (paths []string, whole bool) {
	due, ok := d.due()
	if !ok || now.Before(due) {
		return nil, false
	}
	for path := range d.paths {
		paths = append(paths, path)
	}
	whole = d.whole
	*d = *newDirty(d.quiet)
	return paths, whole
}
