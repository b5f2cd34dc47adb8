package files

import (
	"errors"
	"fmt"
	"io"
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
	root      string
	files     map[string]signature // by path relative to root
	irregular map[string]error     // paths of what is no file and no folder, though its name is one of ours, or a link to nothing; and why
	dirs      []string             // to be watched, root among them
	unknown   map[string]error     // sub-folders (relative) that could not be listed: nothing is known about what is in them
	seen      map[[2]uint64]bool   // real directories: a link back up must not loop
}

const maxFolderDepth = 32

// walk lists the files below root: hidden names left out, links followed (a mounted ConfigMap is links into ..data).
func walk(root string) *tree {
	t := &tree{root: root, files: map[string]signature{}, irregular: map[string]error{}, unknown: map[string]error{},
		seen: map[[2]uint64]bool{}}
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
		case errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0: // gone since
		case err != nil:
			t.irregular[path] = linkFault(filepath.Join(t.root, path), err)
		case info.IsDir():
			t.dir(path, depth+1)
		case !wanted(path):
		case info.Mode().IsRegular():
			t.files[path] = sign(info)
		default:
			t.irregular[path] = notRegular(info)
		}
	}
}

// linkFault is why a path that is listed cannot be looked at: as a rule it is a link to nothing.
func linkFault(full string, err error) error {
	if to, failed := os.Readlink(full); failed == nil && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is a link to %s, which does not exist", to)
	}
	return err
}

// notRegular is why something that is no file is not read: reading a pipe would wait for somebody who writes.
func notRegular(info fs.FileInfo) error {
	what := "a device"
	switch {
	case info.Mode()&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case info.Mode()&fs.ModeSocket != 0:
		what = "a socket"
	}
	return fmt.Errorf("it is %s, not a file", what)
}

// fault notes a folder that cannot be listed; a sub-folder that is gone is just gone.
func (t *tree) fault(rel string, err error) {
	if rel == "" || !errors.Is(err, fs.ErrNotExist) {
		t.unknown[rel] = err
	}
}

// covers says whether nothing is known about a path, since a folder above it could not be listed.
func (t *tree) covers(path string) bool {
	if t.irregular[path] != nil {
		return true
	}
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

// read readings at one file. It waits for nobody: what is no file is not read.
func read(root, path string) reading {
	data, err := contents(filepath.Join(root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return reading{path: path, missing: true}
	}
	return reading{path: path, err: err, data: data}
}

func contents(full string) ([]byte, error) {
	info, err := os.Stat(full)
	if err != nil {
		if link, failed := os.Lstat(full); failed == nil && link.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%v", linkFault(full, err)) // it is there: nothing is missing
		}
		return nil, err
	}
	if info.IsDir() {
		return nil, fs.ErrNotExist // of that name there is no file
	}
	if !info.Mode().IsRegular() { // devices may not even be opened
		return nil, notRegular(info)
	}
	file, err := os.OpenFile(full, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(info)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("the file has %d bytes, more than %d", info.Size(), maxFile)
	}
	return io.ReadAll(io.LimitReader(file, maxFile+1)) // parse refuses one that has grown
}
