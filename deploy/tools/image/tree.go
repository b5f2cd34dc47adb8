package main

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"os"
	"path"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a file or a folder of an image. Files belong to root, so that a program cannot change itself.
type file struct {
	from   string // a file of this machine, or body
	body   []byte
	folder bool
	mode   int64
	uid    int // and gid
}

// tree is the files of a layer, by absolute path; parent folders that are not listed belong to root.
type tree map[string]file

// layer returns the tree as a layer, sorted by path and with one time.
func (t tree) layer(created v1.Time) (v1.Layer, error) {
	all := maps.Clone(t)
	for name := range t {
		for folder := path.Dir(name); folder != "/"; folder = path.Dir(folder) {
			if _, named := all[folder]; !named {
				all[folder] = file{folder: true, mode: 0o755}
			}
		}
	}
	open := func() (io.ReadCloser, error) {
		out, in := io.Pipe()
		go func() { in.CloseWithError(all.tar(in, created)) }()
		return out, nil
	}
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func (t tree) tar(to io.Writer, created v1.Time) error {
	out := tar.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := t[name].tar(out, name[1:], created); err != nil {
			return err
		}
	}
	return out.Close()
}

func (f file) tar(out *tar.Writer, name string, created v1.Time) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Uid: f.uid,
		Gid: f.uid, Size: int64(len(f.body)), ModTime: created.Time, Format: tar.FormatUSTAR}
	var content io.Reader = bytes.NewReader(f.body)
	switch {
	case f.folder:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case f.from != "":
		opened, err := os.Open(f.from)
		if err != nil {
			return err
		}
		defer opened.Close()
		info, err := opened.Stat()
		if err != nil {
			return err
		}
		header.Size, content = info.Size(), opened
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}
