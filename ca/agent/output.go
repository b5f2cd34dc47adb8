package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"navarch.io/navarch/store/durable"
)

// output is a directory whose files change together, as in Kubernetes' Secret volumes: they are links through ..data,
// which is renamed. So readers never combine a key with another certificate. Each file is on disk before a link leads
// to it: after a crash of the machine the old files or the new ones are there, complete.
type output struct {
	dir string
	old string // the directory that ..data names

	replace func(path string, mode os.FileMode, write func(io.Writer) error) error // durable.Replace
	link    func(target, path string) error                                        // durable.Link
}

func newOutput(dir string) *output {
	return &output{dir: dir, replace: durable.Replace, link: durable.Link}
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
		err := o.replace(filepath.Join(fresh, name), 0o600, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
		if err != nil {
			return errors.Join(err, os.RemoveAll(fresh))
		}
	}
	if o.old == "" { // left by an earlier process
		if target, err := os.Readlink(filepath.Join(o.dir, "..data")); err == nil && filepath.Base(target) == target {
			o.old = filepath.Join(o.dir, target)
		}
	}
	if err := o.link(filepath.Base(fresh), filepath.Join(o.dir, "..data")); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	old := o.old
	o.old = fresh
	for name := range files {
		path, target := filepath.Join(o.dir, name), filepath.Join("..data", name)
		if have, err := os.Readlink(path); err == nil && have == target {
			continue
		}
		if err := o.link(target, path); err != nil {
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
