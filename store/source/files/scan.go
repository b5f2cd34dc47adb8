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

// signature identifies the state of a file without reading the file. A file with an unchanged signature counts as
// unchanged.
type signature struct {
	size, modified int64 // bytes; Unix time in nanoseconds
	device, inode  uint64
}

// tree is the result of one walk over the folder.
type tree struct {
	root  string
	files map[string]signature // by path relative to root
	// irregular has the reason, by path, for paths that cannot be read. Such a path is neither file nor folder, or
	// cannot be examined, for example because it is a broken link.
	irregular map[string]error
	dirs      []string           // folders to watch, including root
	unknown   map[string]error   // folders (relative; "" is the root) that cannot be listed or are nested too deeply
	seen      map[[2]uint64]bool // real directories by device and inode, because links may form loops
}

// maxFolderDepth is the largest depth of folders below the root.
const maxFolderDepth = 32

// walk lists the .yaml, .yml and .json files below root. It skips hidden names, and follows symbolic links (a mounted
// ConfigMap consists of links into ..data).
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
		case errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0: // removed since the folder was listed
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

// linkFault returns the reason why a listed path cannot be examined. Usually the path is a link to nothing.
func linkFault(full string, err error) error {
	if to, failed := os.Readlink(full); failed == nil && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it is a link to %s, which does not exist", to)
	}
	return err
}

// notRegular returns the reason why a path that is not a regular file is not read. For example, reading a pipe would
// wait for a writer.
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

// fault stores a folder that cannot be listed. A sub-folder that vanished is not a fault.
func (t *tree) fault(rel string, err error) {
	if rel == "" || !errors.Is(err, fs.ErrNotExist) {
		t.unknown[rel] = err
	}
}

// covers reports whether a path's content is unknown, because the path or a folder above it cannot be read. A root that
// does not exist covers no path.
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

// read reads one file. Pipes and devices yield an error without blocking.
func read(root, path string) reading {
	data, err := contents(filepath.Join(root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return reading{path: path, missing: true}
	}
	return reading{path: path, err: err, data: data}
}

// contents returns the content of a regular file. The error matches fs.ErrNotExist if there is no file of that name.
func contents(full string) ([]byte, error) {
	info, err := os.Stat(full)
	if err != nil {
		if link, failed := os.Lstat(full); failed == nil && link.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%v", linkFault(full, err)) // the link exists, so the file does not count as missing
		}
		return nil, err
	}
	if info.IsDir() {
		return nil, fs.ErrNotExist // there is no file of that name
	}
	if !info.Mode().IsRegular() { // opening a device may have effects
		return nil, notRegular(info)
	}
	file, err := os.OpenFile(full, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the path may have become a pipe
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
	return io.ReadAll(io.LimitReader(file, maxFile+1)) // parse refuses a file that has grown
}
