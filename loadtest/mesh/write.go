package mesh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// marker is the file that identifies a folder as a mesh's; servers skip hidden files.
const marker = ".navarch-mesh"

// Write writes the mesh below dir, which must be empty, absent, or written by Write before; then it is replaced.
// Errors: another folder, which is left unchanged, or an error of the file system, after which a part is written.
func (w *Mesh) Write(dir string) error {
	if err := empty(dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, marker), []byte(w.Settings.Name+"\n"), 0o644); err != nil {
		return err
	}
	made := map[string]bool{}
	for path, data := range w.Files() {
		full := filepath.Join(dir, filepath.FromSlash(path))
		if parent := filepath.Dir(full); !made[parent] {
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return err
			}
			made[parent] = true
		}
		if err := os.WriteFile(full, data, 0o644); err != nil {
			return err
		}
	}
	// Folders for later edits are created now: a new folder would make a server read all of them.
	for _, sub := range []string{"virtualservices", "policies"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// empty makes dir an empty folder. It removes only files that Write has written.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o755)
	}
	if err != nil || len(entries) == 0 {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
		return fmt.Errorf("folder %s is not empty, and no mesh was written there before", filepath.Base(dir))
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// put replaces files atomically. All files are first written beside their targets and then renamed together, so that a
// server reads whole files, and many of them within one or two milliseconds. It returns the time of the first rename.
func put(dir string, files []file) (time.Time, error) {
	var at time.Time
	staged := make([]string, len(files))
	for i, f := range files {
		full := filepath.Join(dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return at, err
		}
		staged[i] = filepath.Join(filepath.Dir(full), "."+filepath.Base(full)+".new") // hidden, so servers skip it
		if err := os.WriteFile(staged[i], f.data, 0o644); err != nil {
			return at, err
		}
	}
	at = time.Now()
	for i, f := range files {
		if err := os.Rename(staged[i], filepath.Join(dir, filepath.FromSlash(f.path))); err != nil {
			return at, err
		}
	}
	return at, nil
}
