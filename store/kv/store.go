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

// Config says where an external etcd is.
type Config struct {
	Mesh      string   // name of the mesh: no slashes
	Revision  string   // of the control plane (RevisionPrefix): no slashes
	Endpoints []string // host:port, or URLs: http, https, unix
	TLS       *tls.Config
	Username  string // empty: etcd has no authentication
	Password  string
	Logger    *slog.Logger // nil: slog's default
}

// Store is a connection to the etcd that holds one mesh, for one revision of its control plane. Safe for concurrent use. The errors of its methods say what
// was attempted, and wrap one of errors.go, or else the error of etcd's client: its own, a gRPC status, or the context's. A path that is none of the
// families of keys.go is an error, too, and nothing is asked of etcd then.
type Store struct {
	client   *clientv3.Client
	prefix   string // of what the revision has for itself
	mesh     string // of what all revisions have in common
	revision string
	log      *slog.Logger
	now      func() time.Time
	last     *atomic.Pointer[wrote] // the newest head that this process completed

	between func() // for tests: between two transactions of a batch
}

// Open connects to an external etcd. It does not wait for etcd to answer, except that a user is logged in when etcd answers
// within 5 s: a wrong password is an error here.
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
		// An etcd that comes back is found within seconds; gRPC's own pause grows to two minutes.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}), grpc.WithChainUnaryInterceptor(named.attempt)},
		Logger: zap.NewNop(), // what fails is returned to the caller, who logs it
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", cfg.Endpoints, err)
	}
	named.wrap(client)
	return &Store{client: client, prefix: RevisionPrefix(cfg.Mesh, cfg.Revision), mesh: Prefix(cfg.Mesh),
		revision: cmp.Or(cfg.Revision, DefaultRevision), log: cfg.Logger, now: time.Now,
		last: &atomic.Pointer[wrote]{}}, nil
}

// connect makes a client, which logs in as it is made. An etcd that does not answer now is no error: the client begins with
// a token that no etcd knows, and logs in by itself as soon as one says so, as it does when its token has run out.
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

// isAway tells an etcd that did not answer from one that said no.
func isAway(err error) bool {
	code := status.Code(err)
	return errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Unavailable
}

// Client is the etcd client, for the packages that may import it.
func (s *Store) Client() *clientv3.Client { return s.client }

// Prefix is where the keys are that the revision has for itself: RevisionPrefix.
func (s *Store) Prefix() string { return s.prefix }

// Endpoints is where etcd answers.
func (s *Store) Endpoints() []string { return s.client.Endpoints() }

// Close ends the connection. Errors are the client's.
func (s *Store) Close() error {
	if err := s.client.Close(); !errors.Is(err, context.Canceled) { // the client's word for: closed
		return err
	}
	return nil
}

// Stat is what one linearizable read says about the store.
type Stat struct {
	Cluster  uint64 // etcd's cluster id
	Revision int64  // of the whole etcd, whoever wrote
	Head     Head
}

// Stat reads the head, linearizably: no replica has been told of anything newer when it is called.
// Errors are etcd's; what is wrong with the head itself is in the result.
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
