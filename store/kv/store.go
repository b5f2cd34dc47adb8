package kv

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config describes the connection to an external etcd.
type Config struct {
	Mesh      string      // name of the mesh: not empty, without slashes
	Revision  string      // revision of the control plane, without slashes; empty: DefaultRevision
	Endpoints []string    // host:port, or URLs: http, https, unix
	TLS       *tls.Config // nil: plaintext, or the system's roots for https
	Username  string      // empty: etcd has no authentication
	Password  string
	Logger    *slog.Logger // nil: slog's default
}

// Store is a connection to the etcd of one mesh, for one revision of its control plane. It is safe for concurrent use.
// Errors of its requests for keys wrap one of this package's errors (ErrForbidden, ErrFull and others) if it applies.
// All other errors of etcd are an error of etcd's client, a gRPC status or the context's error, possibly wrapped. If a
// path is outside the folders that a method accepts, the method returns an error before any request.
type Store struct {
	client   *clientv3.Client
	prefix   string // prefix of the keys that belong to the revision
	mesh     string // prefix of the keys that all revisions share
	revision string
	log      *slog.Logger
	now      func() time.Time
	last     *atomic.Pointer[wrote] // the newest head that this process completed

	between func() // for tests: between two transactions of a batch
}

// Open connects to an external etcd without waiting for an answer. Only a login with a username waits, for 5 s at most.
// Errors: the mesh or the revision is invalid, there are no endpoints, an endpoint is invalid, or etcd refuses the
// login. An etcd that does not answer is not an error.
func Open(cfg Config) (*Store, error) {
	if err := checkMesh(cfg.Mesh); err != nil {
		return nil, err
	}
	if err := checkRevision(cfg.Revision); err != nil {
		return nil, err
	}
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("no etcd endpoints")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	named := &answers{at: cfg.Endpoints}
	client, err := connect(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		Username:             cfg.Username,
		Password:             cfg.Password,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second, // a silent partition is noticed within 13 s
		DialKeepAliveTimeout: 3 * time.Second,
		// An etcd that returns is found within seconds; the default pause of gRPC grows to two minutes.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}), grpc.WithChainUnaryInterceptor(named.attempt)},
		Logger: zap.NewNop(), // errors are returned to the caller, who logs them
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", cfg.Endpoints, err)
	}
	named.wrap(client)
	return &Store{client: client, prefix: RevisionPrefix(cfg.Mesh, cfg.Revision), mesh: Prefix(cfg.Mesh),
		revision: cmp.Or(cfg.Revision, DefaultRevision), log: cfg.Logger, now: time.Now,
		last: &atomic.Pointer[wrote]{}}, nil
}

// connect makes a client that has logged in. If etcd does not answer now, the client begins with an invalid token, and
// logs in when etcd rejects that token, as for an expired one.
func connect(cfg clientv3.Config) (*clientv3.Client, error) {
	client, err := clientv3.New(cfg)
	if cfg.Username == "" || !isAway(err) {
		return client, err
	}
	user, password := cfg.Username, cfg.Password
	cfg.Username, cfg.Password, cfg.Token = "", "", "none"
	if client, err = clientv3.New(cfg); err != nil {
		return nil, err
	}
	client.Username, client.Password, client.Token = user, password, ""
	return client, nil
}

// isAway reports whether an error means that etcd did not answer, in contrast to an answer with an error.
func isAway(err error) bool {
	code := status.Code(err)
	return errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Unavailable
}

// Client returns the etcd client, which Close closes. It is for store/lead and tests only.
func (s *Store) Client() *clientv3.Client { return s.client }

// Prefix returns the prefix of the keys that belong to the revision (RevisionPrefix).
func (s *Store) Prefix() string { return s.prefix }

// Endpoints returns the configured addresses of etcd.
func (s *Store) Endpoints() []string { return s.client.Endpoints() }

// Close closes the connection, and ends watches and the renewal of leases. Further calls return nil. Errors are the
// client's.
func (s *Store) Close() error {
	if err := s.client.Close(); !errors.Is(err, context.Canceled) { // the client's error of a closed client
		return err
	}
	return nil
}

// Stat is the result of one linearizable read of the head.
type Stat struct {
	Cluster  uint64 // etcd's cluster id
	Revision int64  // revision of the whole etcd, with the writes of all its users
	Head     Head   // zero: there is no head
}

// Stat reads the head linearizably, so the result is at least as new as anything that a replica knew when Stat was
// called. Errors are etcd's. If the head does not decode, Stat returns no error, and Head.Err states the problem.
func (s *Store) Stat(ctx context.Context) (Stat, error) {
	resp, err := s.client.Get(ctx, s.prefix+headPath)
	if err != nil {
		return Stat{}, fmt.Errorf("read the head: %w", err)
	}
	stat := Stat{Cluster: resp.Header.ClusterId, Revision: resp.Header.Revision}
	if len(resp.Kvs) > 0 {
		stat.Head = decodeHead(resp.Kvs[0].Value, resp.Kvs[0].ModRevision)
	}
	return stat, nil
}
