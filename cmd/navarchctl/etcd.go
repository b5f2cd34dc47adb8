package main

import (
	"errors"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/pflag"

	"navarch.io/navarch/cmd/internal/etcdflags"
	"navarch.io/navarch/store/kv"
)

// etcd has the flags for access to the mesh's store in etcd. The access is by the Unix socket in navarchd's data
// directory, or by addresses with credentials. With this access a command can change the mesh. navarchd has no API for
// such changes.
type etcd struct {
	dataDir string
	etcdflags.Flags
	mesh     string
	revision string // control plane revision, for the command store; empty: the default revision
}

func (e *etcd) bind(f *pflag.FlagSet) {
	f.StringVar(&e.dataDir, "data-dir", "", "navarchd's data directory (embedded etcd).")
	e.Flags.Bind(f)
	f.StringVar(&e.mesh, "mesh", "default", "Name of the mesh.")
}

// discard is a logger that drops all lines. Packages that a command uses get this logger, because they return their
// errors.
var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

// open connects to the store. It fails unless exactly one of --data-dir and --etcd-endpoints is given. It also fails if
// the credentials are invalid, or if the connection cannot be set up.
func (e *etcd) open() (*kv.Store, error) {
	if (e.dataDir == "") == (len(e.Endpoints) == 0) {
		return nil, errors.New("either --data-dir or --etcd-endpoints is needed")
	}
	if err := e.Check(); err != nil {
		return nil, err
	}
	cfg, err := e.Config()
	if err != nil {
		return nil, err
	}
	if e.dataDir != "" {
		dir, err := filepath.Abs(e.dataDir)
		if err != nil {
			return nil, err
		}
		cfg.Endpoints = []string{"unix://" + filepath.Join(dir, "etcd.sock")}
	}
	cfg.Mesh, cfg.Revision, cfg.Logger = e.mesh, e.revision, discard
	return kv.Open(cfg)
}
