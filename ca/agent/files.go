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

// maxNames bounds the number of file secrets (SDS secrets that are read from files) that all streams request together.
// maxFile is the largest accepted size of a file, in bytes. No Kubernetes Secret is larger.
const (
	maxNames = 256
	maxOwned = 32  // file secrets for the objects of one namespace, except the proxy's own
	maxOther = 192 // file secrets for the objects of all namespaces except the proxy's own
	maxFile  = 1 << 20
)

// files serves the file secrets that Envoy requests. The name of a file secret contains the paths of its files
// (fileName). The files are read at the first request and after each change, also when Kubernetes swaps the links of a
// mounted Secret. While a file is unreadable or invalid, the version read before is served.
type files struct {
	log  *slog.Logger
	set  func(...*secret)  // publishes secrets to the streams
	drop func(name string) // called when no stream wants the secret any more

	mu     sync.Mutex // guards the fields below; also held while files are read
	wanted map[string]*fileSecret
	owned  map[string]int // number of wanted secrets by owner, a namespace; "": the proxy's own
	full   bool           // a refusal by want was logged; set to false when a secret is dropped
}

// fileSecret is one requested file secret.
type fileSecret struct {
	name    fileName
	streams int           // number of streams that want the secret
	seen    []fs.FileInfo // state of each file at the last read; nil: not all files could be read
	version string        // served version; empty: no version is served
	fault   string        // error of the name or of the present files; empty: the present files are served
}

// want records that one more stream wants the secret with this name. For the first such stream, want reads the files.
// If a new secret would exceed maxNames, maxOwned or maxOther, want returns false and records nothing. Secrets for
// objects of the proxy's own namespace are bounded only by maxNames. So the secrets of other namespaces leave room for
// those of the proxy's own namespace.
func (f *files) want(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	if s == nil {
		if most := f.most(name); most > 0 {
			if !f.full {
				f.log.Warn("Envoy requests too many secrets from files; the agent does not serve the rest", "name", name, "most", most)
			}
			f.full = true
			return false
		}
		s = &fileSecret{}
		f.wanted[name] = s
		_, owner := splitOwner(name)
		f.owned[owner]++
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

// most returns the bound that a new secret with this name would exceed, or 0 if it would exceed no bound.
func (f *files) most(name string) int {
	_, owner := splitOwner(name)
	switch {
	case len(f.wanted) >= maxNames:
		return maxNames
	case owner == "":
		return 0
	case f.owned[owner] >= maxOwned:
		return maxOwned
	case len(f.wanted)-f.owned[""] >= maxOther:
		return maxOther
	}
	return 0
}

// release records that one stream no longer wants the secret with this name. If no other stream wants the secret, it is
// dropped.
func (f *files) release(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	if s.streams--; s.streams == 0 {
		delete(f.wanted, name)
		_, owner := splitOwner(name)
		if f.owned[owner]--; f.owned[owner] == 0 {
			delete(f.owned, owner)
		}
		f.full = false
		f.drop(name)
	}
}

// follow checks the files once in each period until ctx ends, and then returns nil.
func (f *files) follow(ctx context.Context, period time.Duration) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.readChanged()
		case <-ctx.Done():
			return nil
		}
	}
}

// readChanged reads the files that have changed.
func (f *files) readChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.wanted {
		if s.name.make != nil && s.changed() {
			f.read(name, s)
		}
	}
}

// changed reports whether the files may have changed since the last read. A file that was modified within the last 2 s
// counts as changed, because two writes within some milliseconds may have the same modification time.
func (s *fileSecret) changed() bool {
	const coarse = 2 * time.Second
	for i, path := range s.name.paths {
		now, err := os.Stat(path)
		if err != nil || s.seen == nil {
			return true
		}
		before := s.seen[i]
		if !os.SameFile(now, before) || !now.ModTime().Equal(before.ModTime()) ||
			now.Size() != before.Size() || time.Since(now.ModTime()) < coarse {
			return true
		}
	}
	return false
}

// read reads the files, and publishes the secret if its version differs from the served one.
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

// fails records a fault, and logs it unless the previous fault had the same text.
func (f *files) fails(name string, s *fileSecret, err error) {
	if err.Error() == s.fault {
		return
	}
	s.fault = err.Error()
	if s.version == "" {
		f.log.Warn("files of a secret cannot be served; Envoy has no version of the secret", "name", name, "error", err)
		return
	}
	f.log.Warn("files of a secret cannot be served; Envoy keeps the version read before", "name", name, "error", err)
}

// faults lists the secrets whose files have faults, sorted by name.
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

// FileFault is the fault of a secret that Envoy requests by file paths. The secret's name is invalid, or its present
// files are unreadable or invalid.
type FileFault struct {
	Name   string `json:"name"`   // the secret's name as Envoy requests the secret, with the paths
	Error  string `json:"error"`  // reason to refuse the name or the files; never empty
	Served bool   `json:"served"` // a version of the secret that was read earlier is served
}
