package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Servers provides clients of the API servers of the other clusters (all except the config cluster). It builds them
// from the credentials that the leader stores in etcd (Clusters.Lead). Each process that verifies callers' tokens
// against other clusters uses Servers. Clusters.Problems, not Servers, reports problems of the Secrets. Make it with
// NewServers.
type Servers struct {
	Config
	notify func(map[string]*apiserver.Client)
	logged *obs.Sampled // for messages whose rate the author of a Secret controls

	servers map[string]server // by cluster name; used only by the goroutine of Run
	known   bool              // notify was called; used only by the goroutine of Run

	mu    sync.Mutex        // guards named
	named map[string]string // Secret of each cluster (namespace/name), by cluster name, also if its kubeconfig is refused
}

// server is the API server of one cluster.
type server struct {
	revision int64             // revision of the blob (stored value) in etcd; 0: the blob could not be opened, and is tried again
	secret   string            // name of the Secret; empty: no blob of the cluster was opened yet
	digest   [sha256.Size]byte // SHA-256 of the kubeconfig that client was built from
	client   *apiserver.Client // nil: no usable kubeconfig was stored yet
}

// NewServers returns a Servers. It sends no request: Run does. The error means that c.Allowed contains an unknown
// option. The fields Kubeconfig, Own, Source, Expect and Settle of c are ignored. notify must not be nil.
//
// Run calls notify, and waits for it, once the leader has stored all clusters, and then after each change of a client.
// The argument maps the names of the other clusters to their clients; notify owns the map. A cluster without a usable
// kubeconfig is missing. If a stored kubeconfig is refused or cannot be decrypted, the previous client of its cluster
// stays in use. Without c.Sealer there are no clients.
func NewServers(c Config, notify func(map[string]*apiserver.Client)) (*Servers, error) {
	if err := apiserver.CheckOptions(c.Allowed); err != nil {
		return nil, err
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Servers{Config: c, notify: notify, logged: obs.NewSampled(c.Log)}, nil
}

// Run watches the stored credentials until ctx ends, and returns the error of ctx. If Store.Follow fails, Run returns
// its error at once. While etcd is not reachable, the known clients stay in use. Run must be called only once.
func (s *Servers) Run(ctx context.Context) error {
	states, err := s.Store.Follow(ctx, folder)
	if err != nil {
		return err
	}
	var newest kv.Folder
	var again <-chan time.Time
	for {
		select {
		case state, more := <-states:
			if !more {
				return ctx.Err()
			}
			newest = state
		case <-again:
		}
		again = nil
		if !s.follow(ctx, newest.Blobs) {
			again = time.After(storeAgain)
		}
	}
}

// Named maps the name of each other cluster to its Secret (namespace/name), as last read from etcd. A cluster whose
// stored value was never decrypted is missing. The result is nil until Run has read a complete set of clusters. The
// caller owns the map. Named is safe for concurrent use.
func (s *Servers) Named() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.named)
}

// follow replaces the servers by those of the stored blobs. It calls notify the first time, and later if the clients
// changed. It returns false if a blob could not be opened, so that the caller has to retry.
func (s *Servers) follow(ctx context.Context, blobs []kv.Blob) (whole bool) {
	if !slices.ContainsFunc(blobs, func(b kv.Blob) bool { return b.Path == listed }) {
		return true // no leader has stored the complete set yet, or etcd was emptied
	}
	whole = true
	servers, names, clients := map[string]server{}, map[string]string{}, map[string]*apiserver.Client{}
	for _, b := range blobs {
		cluster, is := strings.CutPrefix(b.Path, named)
		if !is {
			continue
		}
		one := s.serverOf(ctx, cluster, b)
		servers[cluster] = one
		whole = whole && one.revision != 0
		if one.secret != "" {
			names[cluster] = s.Namespace + "/" + one.secret
		}
		if one.client != nil {
			clients[cluster] = one.client
		}
	}
	before := map[string]*apiserver.Client{}
	for cluster, one := range s.servers {
		if one.client != nil {
			before[cluster] = one.client
		}
	}
	changed := !s.known || !maps.Equal(clients, before)
	s.servers, s.known = servers, true
	s.mu.Lock()
	s.named = names
	s.mu.Unlock()
	if changed {
		s.notify(clients)
	}
	return whole
}

// serverOf returns the server of a cluster as its blob describes it. If the blob, or the kubeconfig in it, is unusable,
// the result has the previous client.
func (s *Servers) serverOf(ctx context.Context, cluster string, b kv.Blob) server {
	one := s.servers[cluster]
	if one.revision == b.Revision {
		return one
	}
	one.revision = 0
	if s.Sealer == nil {
		s.logged.Warn("tokens of other clusters are not verified: this process has no key encryption key (--kek), "+
			"under which the leader stores their credentials", "")
		one.revision = b.Revision // a retry cannot succeed
		return one
	}
	plain, err := s.Sealer.Open(ctx, cluster, b.Raw)
	var c credentials
	if err == nil {
		err = json.Unmarshal(plain, &c)
		clear(plain)
	}
	if err != nil {
		s.logged.Warn("the stored credentials of a cluster cannot be opened; the previous credentials, if any, stay in use", cluster,
			keyCluster, cluster, obs.KeyError, err)
		return one
	}
	one.revision, one.secret = b.Revision, c.Secret
	digest := sha256.Sum256(c.Kubeconfig)
	if one.client != nil && one.digest == digest {
		return one
	}
	client, err := s.clientOf(c.Kubeconfig)
	if err != nil {
		s.logged.Warn("the kubeconfig of a cluster is not used", cluster, keyCluster, cluster, "secret", c.Secret, obs.KeyError, err)
		return one
	}
	one.client, one.digest = client, digest
	return one
}

// clientOf returns a client of the API server that a kubeconfig names. It sends no request.
func (s *Servers) clientOf(kubeconfig []byte) (*apiserver.Client, error) {
	config, err := apiserver.Inline(kubeconfig, s.Allowed)
	if err != nil {
		return nil, err
	}
	return apiserver.Of(config)
}
