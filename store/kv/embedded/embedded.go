// Package embedded runs an etcd of one member in this process, so that a mesh of one replica needs no other program. A
// Server is the etcd together with a kv.Store that is connected to it.
//
// Owns: the data directory; the etcd server and its maintenance.
// Reads: store/kv.
// Never: linked by programs that only connect to etcd.
//
// An embedded etcd listens on a Unix socket, so there is no port to guard. The locked data directory proves that no
// other process runs. An elector therefore deletes the election keys of a killed process immediately (lead.Config,
// Alone).
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

// Config configures an embedded etcd. Mesh and Dir are required.
type Config struct {
	Mesh     string       // name of the mesh
	Revision string       // revision of the control plane, as in kv.Config
	Dir      string       // data directory: created with mode 0700 if missing, locked while the server runs
	Logger   *slog.Logger // nil: slog's default
	// Free returns the bytes that this process may still write on the disk of a folder; nil: durable.Free.
	Free func(folder string) (uint64, error)

	Tune func(*embed.Config) // for tests: changes etcd's configuration last
}

// Server is an etcd in this process, with the connection to it. It is safe for concurrent use, but Run may be called
// only once.
type Server struct {
	*kv.Store
	cfg      Config
	dir      string // absolute
	log      *slog.Logger
	lock     *os.File
	socket   string                 // path
	apart    string                 // folder of the socket, if the socket is not in the data directory
	stopping atomic.Bool            // Close was called
	room     atomic.Pointer[string] // result of Room; nil: there is room

	mu   sync.Mutex  // guards etcd
	etcd *embed.Etcd // nil: not started yet, because the disk lacks space
}

const (
	// startTimeout bounds the start of a server. Replaying a log of 2 GiB is the worst case.
	startTimeout = time.Minute
	// maintainEvery is the pause between two rounds of maintenance.
	maintainEvery = time.Minute
	// keep is the least age of history that compaction removes. A watch can resume after a pause of that length.
	keep = 5 * time.Minute
	// elect is etcd's election timeout, and tick its heartbeat interval, at most a fifth of the timeout
	// (embed.Config.Validate). After its start the single member waits for a random part of the timeout before it
	// elects itself. With etcd's default of a second, this wait was the longest part of the start of a process.
	elect = 100 * time.Millisecond
	tick  = elect / 5
)

// Start runs an etcd on a data directory and connects to it. The caller must call Run and Close. etcd listens on a Unix
// socket only: in the data directory, or in a temporary directory if the path would be too long. A directory that Start
// creates is closed to other users. The mode of an existing directory stays. If the disk has less than Least free, etcd
// is not started, and the store does not answer until Run has started it.
//
// Errors: ErrLocked if another process uses the directory, the directory is not given or cannot be used, etcd does not
// start within a minute, or the error of kv.Open.
func Start(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Dir == "" {
		return nil, errors.New("no data directory is given")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
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

// Run maintains the database and watches the free space of the disk until ctx ends, and returns the context's error. If
// Start did not start etcd, Run waits for space and starts it. Other errors: etcd does not start, or it stops.
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
			srv.checkRoom(ctx)
		case <-maintain.C:
			srv.maintain(ctx)
		}
	}
}

// maintain performs one round of maintenance, unless the disk is full, since defragmentation writes the database again.
// Failures are logged.
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

// Close closes the connection, stops the server and unlocks the data directory. It returns the joined errors of these
// steps.
func (srv *Server) Close() error {
	srv.stopping.Store(true)
	return errors.Join(srv.Store.Close(), srv.stop())
}

// start starts etcd and waits until it is ready. It does nothing if etcd was started before.
func (srv *Server) start() error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.etcd != nil {
		return nil
	}
	if err := os.Remove(srv.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // the directory is locked, so an existing socket is left from a killed process
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
	c.ListenPeerUrls = nil // etcd does not listen for peers; the peer URL of a single member is only a name
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.InitialClusterToken = rand.Text() // a new data directory is a new cluster, with an id of its own
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = uint(tick.Milliseconds()), uint(elect.Milliseconds())
	// etcd keeps the last transactions in memory for members that lag. A single member needs few.
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

// findSocket sets the path of the server's socket. The socket is in the data directory, or in a temporary directory
// if the path would be too long for a socket (108 bytes on Linux).
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

// lockDir locks a data directory for as long as the returned file is open. The error is ErrLocked if another process
// has locked the directory.
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
		return nil, fmt.Errorf("%w: %s is served by process %s; one data directory serves one process: stop that process, or use "+
			"--etcd-endpoints for several processes",
			ErrLocked, dir, cmp.Or(strings.TrimSpace(string(holder)), "(unknown)"))
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // the lock is valid without the process id
		return nil, errors.Join(fmt.Errorf("lock the data directory %s: %w", dir, err), file.Close())
	}
	return file, nil
}
