package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// output is a directory whose files change all at once, as Kubernetes' Secret volumes do: they are links through ..data,
// which is renamed. So nobody reads a key and the certificate of another.
type output struct {
	dir string
	old string // the directory that ..data names
}

func (o *output) write(files map[string][]byte) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(o.dir, "..data-") // mode 0700
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(fresh, name), content, 0o600); err != nil {
			return errors.Join(err, os.RemoveAll(fresh))
		}
	}
	if o.old == "" { // of a process before this one
		if target, err := os.Readlink(filepath.Join(o.dir, "..data")); err == nil && filepath.Base(target) == target {
			o.old = filepath.Join(o.dir, target)
		}
	}
	if err := link(filepath.Base(fresh), filepath.Join(o.dir, "..data")); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	old := o.old
	o.old = fresh
	for name := range files {
		path, target := filepath.Join(o.dir, name), filepath.Join("..data", name)
		if have, err := os.Readlink(path); err == nil && have == target {
			continue
		}
		if err := link(target, path); err != nil {
			return err
		}
	}
	if old != "" {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("remove the files before: %w", err)
		}
	}
	return nil
}

// link makes path a symbolic link to target, replacing what is there at once.
func link(target, path string) error {
	next := path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, path)
}
