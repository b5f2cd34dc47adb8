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

// newWatch returns a watch on the root only. An error means that the root cannot be watched.
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
// after ten times quiet. From this cut on, each further burst is cut after twice quiet, until there is a pause. Cuts
// bound the time for which endless edits delay other changes.
type dirty struct {
	quiet       time.Duration
	paths       map[string]time.Time // time at which each path was noted first
	whole       bool                 // folders or links changed, so the whole folder is walked
	first, last time.Time            // times of the burst's first and last event; zero: there is no burst
	cut         time.Time            // time at which the previous burst was cut and emitted; zero: it ended with a pause
}

func newDirty(quiet time.Duration) *dirty { return &dirty{quiet: quiet, paths: map[string]time.Time{}} }

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
		d.add(rel, now)
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
		if now.Sub(d.cut) >= d.quiet { // there was a pause since the cut, so the previous burst has ended
			d.cut = time.Time{}
		}
	}
	d.last = now
}

// due returns the time at which the burst ends or is cut. It returns false if there is no burst.
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

const (
	// most is the largest number of files that are read at once while changes do not pause. Other changes wait while
	// these files are read.
	most = 16
	// mostBytes is the largest total size of the files that are parsed at once. Parsing so many bytes takes a tenth of
	// a second of processor time.
	mostBytes = 1 << 20
	// longestHold is the longest time for which a vanished file comes after existing files. An existing file may have
	// the objects of the vanished file.
	longestHold = 5 * time.Second
)

// sizes returns the size of a file in bytes, given its path. The size is negative if there is no file.
type sizes func(path string) int64

// take returns the burst if it has ended or is cut, and starts the next one. A burst of more than mostBytes is divided.
// Paths of different folders then alternate, and the remaining paths stay for the next burst, which is due at once. The
// result endless states whether it is impossible to recognise changes that belong together. It is true if this burst
// was divided, or if this burst and the previous burst were cut. If both bursts were cut, at most 16 paths (the
// constant most) are taken.
func (d *dirty) take(now time.Time, size sizes) (paths []string, whole, endless bool) {
	if d.first.IsZero() {
		return nil, false, false
	}
	at, cut := d.end()
	if now.Before(at) {
		return nil, false, false
	}
	whole, endless = d.whole, cut && !d.cut.IsZero()
	noted, count := d.paths, len(d.paths)
	if endless {
		count = most
	}
	paths, left := divide(noted, now, count, size)
	if *d = *newDirty(d.quiet); cut || len(left) > 0 {
		d.cut = now
	}
	d.keep(now, left, noted)
	return paths, whole, endless || len(left) > 0
}

// keep leaves paths for the next burst, which is due at once.
func (d *dirty) keep(now time.Time, paths []string, noted map[string]time.Time) {
	for _, path := range paths {
		d.paths[path] = noted[path]
		d.first, d.last, d.cut = now.Add(-2*d.quiet), now, now
	}
}

// add notes a path.
func (d *dirty) add(path string, now time.Time) {
	if _, has := d.paths[path]; !has {
		d.paths[path] = now
	}
}

// divide returns the paths that are read now, and the paths that are left. At most count paths with mostBytes in all
// are read now, but at least one path of any size. If some paths are left, paths of different folders alternate. In
// this case, paths without a file come last, until they have waited longestHold.
func divide(noted map[string]time.Time, now time.Time, count int, size sizes) (paths, left []string) {
	paths = slices.Sorted(maps.Keys(noted))
	sum, bytes := int64(0), map[string]int64{}
	for _, path := range paths {
		bytes[path] = size(path)
		sum += max(0, bytes[path])
	}
	if len(paths) <= count && sum <= mostBytes {
		return paths, nil
	}
	paths = inTurn(paths)
	held := func(path string) int {
		if bytes[path] < 0 && now.Sub(noted[path]) < longestHold {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(paths, func(a, b string) int { return held(a) - held(b) })
	n, sum := 0, int64(0)
	for n < min(count, len(paths)) {
		if sum += max(0, bytes[paths[n]]); sum > mostBytes && n > 0 {
			break
		}
		n++
	}
	return paths[:n], paths[n:]
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
// the time does not count as a pause.
func (d *dirty) done(now time.Time) {
	if !d.cut.IsZero() {
		d.cut = now
	}
}
