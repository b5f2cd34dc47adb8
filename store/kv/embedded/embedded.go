// Package embedded serves an etcd of one member from the process that uses it: a mesh of one replica needs no other
// program.
//
// Owns: the data directory, etcd's server, its maintenance. Reads: store/kv. Never: linked by programs that only
// connect to etcd.
//
// An embedded etcd listens on a Unix socket in its data directory, so there is no port to guard. Its elector deletes
// the election keys of a killed process immediately, because the locked directory proves that no other process runs.
package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/kv"
)

// ErrLocked means that another process uses the data directory.
var ErrLocked = errors.New("data directory is in use")

// Config configures an embedded etcd.
type Config struct {
	Mesh     string
	Revision string       // of the control plane, as in kv.Config
	Dir      string       // data directory: created if missing, closed to other users, locked while the server runs
	Logger   *slog.Logger // nil: slog's default
	// Free returns the bytes that this process may still write on the disk of a folder; nil: durable.Free.
	Free func(folder string) (uint64, error)

	Tune func(*embed.Config) // for tests: changes etcd's configuration last
}

// Server is an etcd in this process, with the connection to it.
type Server struct {
	*kv.Store
	cfg      Config
	dir      string // absolute
	log      *slog.Logger
	lock     *os.File
	socket   string                 // path
	apart    string                 // folder of the socket, where it is not the data directory
	stopping atomic.Bool            // Close was called
	room     atomic.Pointer[string] // why nothing is written; nil: there is room (room.go)

	mu   sync.Mutex  // guards what follows
	etcd *embed.Etcd // nil: it was not started, for want of room on the disk
}

const (
	// startTimeout bounds the start of a server. Replaying a log of 2 GiB is the worst case.
	startTimeout = time.Minute
	// maintainEvery is the pause between two rounds of maintenance.
	maintainEvery = time.Minute
	// keep is the age of history that compaction spares: a mirror can resume after a pause of that length.
	keep = 5 * time.Minute
	// elect is etcd's election timeout, and tick the pace of its clock, of which a timeout has at least five
	// (embed.Config.Validate). The one member elects itself, and after its start waits for a random part of the timeout
	// before it does, as if there were others: with etcd's own second that was the longest wait of all until a process is
	// ready.
	elect = 100 * time.Millisecond
	tick  = elect / 5
)

// Start serves an etcd from a data directory and connects to it. It listens on a Unix socket in that directory only,
// which is closed to other users; there is no port. Where the disk has less than Least free, etcd is not started: the
// store does not answer until Run has started it. ErrLocked where another process serves the directory.
func Start(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil || cfg.Dir == "" {
		return nil, fmt.Errorf("data directory %q: %w", cfg.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if cfg.Free == nil {
		cfg.Free = durable.Free
	}
	srv := &Server{cfg: cfg, dir: dir, log: cfg.Logger}
	if srv.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if err = srv.findSocket(); err == nil && srv.hasRoom(Least) {
		err = srv.start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", dir, err), srv.stop())
	}
	endpoint := url.URL{Scheme: "unix", Path: srv.socket}
	srv.Store, err = kv.Open(kv.Config{Mesh: cfg.Mesh, Revision: cfg.Revision, Endpoints: []string{endpoint.String()}, Logger: cfg.Logger})
	if err != nil {
		return nil, errors.Join(err, srv.stop())
	}
	return srv, nil
}

// Run keeps the database small, and the disk from filling, until the context ends, and returns an error if the server
// dies.
func (srv *Server) Run(ctx context.Context) error {
	etcd, err := srv.begun(ctx)
	if err != nil {
		return err
	}
	look, maintain := time.NewTicker(lookEvery), time.NewTicker(maintainEvery)
	defer look.Stop()
	defer maintain.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-etcd.Err():
			return fmt.Errorf("embedded etcd: %w", err)
		case <-etcd.Server.StopNotify():
			return errors.New("embedded etcd stopped")
		case <-look.C:
			srv.look(ctx)
		case <-maintain.C:
			srv.maintain(ctx)
		}
	}
}

// maintain leaves an etcd alone whose disk is full: to shrink the database is to write it again.
func (srv *Server) maintain(ctx context.Context) {
	if srv.Room() != "" {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, maintainEvery)
	defer cancel()
	if err := srv.Maintain(bounded); err != nil && ctx.Err() == nil {
		srv.log.Warn("maintenance of the embedded etcd failed", slog.Any("error", err))
	}
}

// Close ends the connection and stops the server. Errors are those of both.
func (srv *Server) Close() error {
	srv.stopping.Store(true)
	return errors.Join(srv.Store.Close(), srv.stop())
}

// start serves etcd. With a server that has one already it does nothing.
func (srv *Server) start() error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.etcd != nil {
		return nil
	}
	if err := os.Remove(srv.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // the directory is ours: a socket in it is left from a process that was killed
	}
	var err error
	if srv.etcd, err = embed.StartEtcd(srv.config()); err != nil {
		return err
	}
	timeout, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	select {
	case <-srv.etcd.Server.ReadyNotify():
		return nil
	case err := <-srv.etcd.Err():
		return err
	case <-timeout.Done():
		return fmt.Errorf("not ready after %v", startTimeout)
	}
}

func (srv *Server) config() *embed.Config {
	cfg, c := srv.cfg, embed.NewConfig()
	c.Name = "navarch"
	c.Dir = filepath.Join(srv.dir, "etcd")
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(cfg.Logger, &srv.stopping))
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: srv.socket}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = nil // with one member the peer URL is only a name, and etcd does not listen for peers
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.InitialClusterToken = rand.Text() // a new data directory is a new cluster, with an id of its own
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = uint(tick.Milliseconds()), uint(elect.Milliseconds())
	// etcd keeps the log of the last transactions in memory for members that lag; here there is one member.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 1000, 10
	c.MaxSnapFiles, c.MaxWalFiles = 2, 2
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = keep.String()
	c.MaxRequestBytes = kv.MaxTxnBytes * 3 / 2
	if cfg.Tune != nil {
		cfg.Tune(c)
	}
	return c
}

// findSocket sets where the server listens: in the data directory, or, where that path is longer than a socket's may be
// (108 bytes on Linux), in a directory of its own.
func (srv *Server) findSocket() (err error) {
	const name = "etcd.sock"
	if srv.socket = filepath.Join(srv.dir, name); len(srv.socket) < 100 {
		return nil
	}
	srv.apart, err = os.MkdirTemp("", "navarch-etcd-") // 0700
	srv.socket = filepath.Join(srv.apart, name)
	return err
}

func (srv *Server) stop() error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	var err error
	if srv.etcd != nil {
		srv.etcd.Close()
	}
	if srv.apart != "" {
		err = os.RemoveAll(srv.apart)
	}
	return errors.Join(err, srv.lock.Close()) // closing the file unlocks it
}

// lockDir locks a data directory for as long as the returned file is open.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(file, 64)) // the process id only helps the operator
		file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock the data directory %s: %w", dir, err)
		}
		return nil, fmt.Errorf("%w: %s is served by process %s; one data directory serves one process: stop that one, or use --etcd-endpoints "+
			"for several",
			ErrLocked, dir, cmp.Or(strings.TrimSpace(string(holder)), "(unknown)"))
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // the lock holds without the number
		return nil, errors.Join(fmt.Errorf("lock the data directory %s: %w", dir, err), file.Close())
	}
	return file, nil
}
