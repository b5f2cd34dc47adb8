package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"navarch.io/navarch/store/durable"
)

// output writes files to a directory in the layout of Kubernetes' Secret volumes. Each file name is a link to
// ..data/NAME, and ..data is a link to a directory with the content. A rename of ..data replaces key and certificate at
// the same moment. Each file is on disk before a link leads to it, so a crash of the machine leaves either all old or
// all new files.
type output struct {
	dir string

	replace func(path string, mode os.FileMode, write func(io.Writer) error) error // durable.Replace
	link    func(target, path string) error                                        // durable.Link
}

const freshPrefix = "..data-" // prefix of the names of directories that ..data links to

func newOutput(dir string) *output {
	return &output{dir: dir, replace: durable.Replace, link: durable.Link}
}

func (o *output) write(files map[string][]byte) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(o.dir, freshPrefix) // mode 0700
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
	if err := o.link(filepath.Base(fresh), filepath.Join(o.dir, "..data")); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	for name := range files {
		path, target := filepath.Join(o.dir, name), filepath.Join("..data", name)
		if have, err := os.Readlink(path); err == nil && have == target {
			continue
		}
		if err := o.link(target, path); err != nil {
			return err
		}
	}
	return o.prune(filepath.Base(fresh))
}

// prune removes the previous directory, and directories that a crash or an error has left. It recognises them by
// freshPrefix, and keeps the directory with the given name.
func (o *output) prune(except string) error {
	entries, err := os.ReadDir(o.dir)
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && strings.HasPrefix(name, freshPrefix) && name != except {
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.dir, name)))
		}
	}
	if err != nil {
		return fmt.Errorf("remove the previous files: %w", err)
	}
	return nil
}
