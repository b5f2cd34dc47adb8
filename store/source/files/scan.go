package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// signature tells whether a file may have changed without reading it.
type signature struct {
	size, modified int64
	device, inode  uint64
}

// tree is one walk over the folder.
type tree struct {
	root    string
	files   map[string]signature // by path relative to root
	dirs    []string             // to be watched, root among them
	unknown map[string]error     // sub-folders (relative) that could not be listed: nothing is known about what is in them
	seen    map[[2]uint64]bool   // real directories: a link back up must not loop
}

const maxFolderDepth = 32

// walk lists the files below root: hidden names left out, links followed (a mounted ConfigMap is links into ..data).
func walk(root string) *tree {
	t := &tree{root: root, files: map[string]signature{}, unknown: map[string]error{}, seen: map[[2]uint64]bool{}}
	t.dir("", 0)
	slices.Sort(t.dirs)
	return t
}

func (t *tree) dir(rel string, depth int) {
	full := filepath.Join(t.root, rel)
	info, err := os.Stat(full)
	if err == nil && !info.IsDir() {
		err = errors.New("is no folder")
	}
	if err != nil {
		t.fault(rel, err)
		return
	}
	sig := sign(info)
	if key := [2]uint64{sig.device, sig.inode}; t.seen[key] {
		return
	} else {
		t.seen[key] = true
	}
	if depth > maxFolderDepth {
		t.unknown[rel] = fmt.Errorf("folders are nested more than %d deep", maxFolderDepth)
		return
	}
	t.dirs = append(t.dirs, full)
	entries, err := os.ReadDir(full)
	if err != nil {
		t.fault(rel, err)
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(rel, e.Name())
		if e.Type().IsRegular() && !wanted(path) {
			continue
		}
		info, err := os.Stat(filepath.Join(t.root, path))
		switch {
		case err != nil:
			continue // gone since, or a link to nothing
		case info.IsDir():
			t.dir(path, depth+1)
		case info.Mode().IsRegular() && wanted(path):
			t.files[path] = sign(info)
		}
	}
}

// fault notes a folder that cannot be listed; a sub-folder that is gone is just gone.
func (t *tree) fault(rel string, err error) {
	if rel == "" || !errors.Is(err, fs.ErrNotExist) {
		t.unknown[rel] = err
	}
}

// covers says whether nothing is known about a path, since a folder above it could not be listed.
func (t *tree) covers(path string) bool {
	for dir := range t.unknown {
		if dir == "" && !errors.Is(t.unknown[dir], fs.ErrNotExist) || dir != "" && strings.HasPrefix(path, dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

func wanted(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func sign(info fs.FileInfo) signature {
	s := signature{size: info.Size(), modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = uint64(st.Dev), st.Ino
	}
	return s
}

// read looks at one file.
func read(root, path string) look {
	full := filepath.Join(root, path)
	info, err := os.Stat(full)
	if errors.Is(err, fs.ErrNotExist) {
		return look{path: path, missing: true}
	}
	if err != nil {
		return look{path: path, err: err}
	}
	if !info.Mode().IsRegular() {
		return look{path: path, missing: true} // a pipe or a folder now: not ours to read
	}
	if info.Size() > maxFile {
		return look{path: path, err: fmt.Errorf("the file has %d bytes, more than %d", info.Size(), maxFile)}
	}
	data, err := os.ReadFile(full)
	if errors.Is(err, fs.ErrNotExist) {
		return look{path: path, missing: true}
	}
	return look{path: path, err: err, data: data}
}
