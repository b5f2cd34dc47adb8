package mesh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// marker says that a folder is a world's; servers skip hidden files.
const marker = ".navarch-mesh"

// Write writes the mesh below dir, which must be empty, missing, or written by Write before (then it is replaced). An error: it is none of these,
// and is left alone, or that of the file system, which leaves a part.
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
	// The folders that edits write to are there from the first: a new folder has a server walk all of them.
	for _, sub := range []string{"virtualservices", "policies"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// empty makes dir an empty folder. It removes nothing that Write has not written.
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

// put replaces files, each at once: all are written beside their places first, then renamed in one go, so that a server
// sees whole files, and many of them within a millisecond or two. It returns when the first was renamed.
func put(dir string, files []file) (time.Time, error) {
	var at time.Time
	staged := make([]string, len(files))
	for i, f := range files {
		full := filepath.Join(dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return at, err
		}
		staged[i] = filepath.Join(filepath.Dir(full), "."+filepath.Base(full)+".new") // hidden: nobody reads it
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
