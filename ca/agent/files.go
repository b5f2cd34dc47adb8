package agent

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// maxNames bounds how many secrets of files are served at a time, maxFile the bytes of a file: a Secret of Kubernetes has 1 MiB at most.
const (
	maxNames = 256
	maxFile  = 1 << 20
)

// files are the secrets of files that Envoy wants (fileNames), read when it asks first and again whenever they change, also where Kubernetes swaps the
// links of a mounted Secret. What cannot be read, or is not what its name says, is not served; what was read before stays.
type files struct {
	log  *slog.Logger
	set  func(...*secret)  // gives a secret to the streams
	drop func(name string) // no stream wants it any more

	mu     sync.Mutex // held while files are read; nothing but these secrets waits for it
	wanted map[string]*fileSecret
	full   bool // a name was refused since there were fewer than maxNames
}

// fileSecret is one of them.
type fileSecret struct {
	name    fileName
	streams int           // that want it
	seen    []fs.FileInfo // of its files, as they were read last; nil: not all could be
	version string        // that is served; empty: none
	fault   string        // why it is not served as its files are now; empty: it is
}

// want counts a stream that wants a secret, and reads its files where it is the first one. It says whether it was taken: there may be too many.
func (f *files) want(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	if s == nil {
		if len(f.wanted) >= maxNames {
			if !f.full {
				f.log.Warn("Envoy asks for too many secrets from files; those beyond the limit get no answer", "name", name, "most", maxNames)
			}
			f.full = true
			return false
		}
		s = &fileSecret{}
		f.wanted[name] = s
		var err error
		if s.name, err = parseFileName(name); err != nil {
			f.fails(name, s, err)
		} else {
			f.read(name, s)
		}
	}
	s.streams++
	return true
}

// release ends what want began.
func (f *files) release(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	if s.streams--; s.streams == 0 {
		delete(f.wanted, name)
		f.full = false
		f.drop(name)
	}
}

// follow looks at the files each period, until ctx ends.
func (f *files) follow(ctx context.Context, period time.Duration) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.look()
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads again what has changed.
func (f *files) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.wanted {
		if s.name.make != nil && s.changed() {
			f.read(name, s)
		}
	}
}

// changed says whether the files may be others than those that were read. A file of this moment is read again although nothing tells it from the one
// before: the clock of a file system may stand still for some milliseconds while it is written twice.
func (s *fileSecret) changed() bool {
	const coarse = 2 * time.Second
	for i, path := range s.name.paths {
		now, err := os.Stat(path)
		if err != nil || s.seen == nil {
			return true
		}
		before := s.seen[i]
		if !os.SameFile(now, before) || !now.ModTime().Equal(before.ModTime()) || now.Size() != before.Size() || time.Since(now.ModTime()) < coarse {
			return true
		}
	}
	return false
}

// read reads the files, and serves them where they are another secret than the one before.
func (f *files) read(name string, s *fileSecret) {
	s.seen = nil
	var seen []fs.FileInfo
	var texts [][]byte
	for _, path := range s.name.paths {
		text, info, err := readFile(path)
		if err != nil {
			f.fails(name, s, err)
			return
		}
		seen, texts = append(seen, info), append(texts, text)
	}
	s.seen = seen
	made, err := s.name.make(name, texts)
	if err != nil {
		f.fails(name, s, err)
		return
	}
	if s.fault != "" {
		s.fault = ""
		f.log.Info("the files of a secret are served now", "name", name)
	}
	if made.version != s.version {
		s.version = made.version
		f.set(made)
	}
}

// fails notes what is wrong, and logs it where it was not known.
func (f *files) fails(name string, s *fileSecret, err error) {
	if err.Error() == s.fault {
		return
	}
	s.fault = err.Error()
	if s.version == "" {
		f.log.Warn("Envoy's configuration names files that cannot be served; it has no such secret until they can be", "name", name, "error", err)
		return
	}
	f.log.Warn("files of a secret are not taken; Envoy keeps those that were read before", "name", name, "error", err)
}

// faults are the names of secrets with what is wrong with their files, sorted.
func (f *files) faults() (out []FileFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.wanted)) {
		if s := f.wanted[name]; s.fault != "" {
			out = append(out, FileFault{Name: name, Error: s.fault, Served: s.version != ""})
		}
	}
	return out
}

// FileFault is a secret of files that is not served as the files are now.
type FileFault struct {
	Name   string `json:"name"` // as Envoy asks for it, with the paths
	Error  string `json:"error"`
	Served bool   `json:"served"` // what was read before is
}
