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

// Servers follows how the API servers of other clusters are reached, by what the leader stores (Clusters.Lead). Every
// process that asks other clusters about the identities of callers has it, whoever leads; what is wrong with Secrets
// the leader says (Clusters.Problems).
type Servers struct {
	Config
	notify func(map[string]*apiserver.Client)
	logged *obs.Sampled // lines that a Secret can bring about

	servers map[string]server // follow's
	known   bool              // notify was called; follow's

	mu    sync.Mutex        // guards what follows
	named map[string]string // the Secret of each cluster, also of one whose kubeconfig is refused
}

// server is the API server of one cluster.
type server struct {
	revision int64             // of what is stored; 0: that did not open
	secret   string            // empty: nothing of the cluster has opened yet
	digest   [sha256.Size]byte // of the kubeconfig that client is made of
	client   *apiserver.Client // nil: none of its kubeconfigs was good
}

// NewServers checks the allowed options; nothing is asked before Run. Of the Config Kubeconfig, Source and Expect do
// not count. notify is called with the API servers of all other clusters, by name, once the leader has stored all of
// them and then whenever they are others, by the goroutine of Run, which waits for it; the map is its to keep. A
// kubeconfig that is refused, or cannot be opened, changes nothing of a cluster that is known already.
func NewServers(c Config, notify func(map[string]*apiserver.Client)) (*Servers, error) {
	if err := apiserver.CheckOptions(c.Allowed); err != nil {
		return nil, err
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Servers{Config: c, notify: notify, logged: obs.NewSampled(c.Log)}, nil
}

// Run follows the stored clusters until ctx ends, and returns its error. Known clusters stay while etcd is away.
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

// Named returns the Secret (namespace/name) of each other cluster, by the cluster's name, as last read.
func (s *Servers) Named() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.named)
}

// follow takes what is stored, and notifies where API servers are others. False: something does not open, and is to be
// tried again.
func (s *Servers) follow(ctx context.Context, blobs []kv.Blob) (whole bool) {
	if !slices.ContainsFunc(blobs, func(b kv.Blob) bool { return b.Path == listed }) {
		return true // no leader has stored all of them yet, or etcd was emptied
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

// serverOf is the API server of a cluster by what is stored of it.
func (s *Servers) serverOf(ctx context.Context, cluster string, b kv.Blob) server {
	one := s.servers[cluster]
	if one.revision == b.Revision {
		return one
	}
	one.revision = 0
	if s.Sealer == nil {
		s.logged.Warn("tokens of other clusters are not verified: this process has no key encryption key (--kek), under which the leader stores their credentials", "")
		one.revision = b.Revision // trying again would not help
		return one
	}
	plain, err := s.Sealer.Open(ctx, cluster, b.Raw)
	var c credentials
	if err == nil {
		err = json.Unmarshal(plain, &c)
		clear(plain)
	}
	if err != nil {
		s.logged.Warn("the stored credentials of a cluster cannot be opened; those before stay in use, if there were some", cluster, keyCluster, cluster, obs.KeyError, err)
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

// clientOf makes a client of a cluster's API server; nothing is asked.
func (s *Servers) clientOf(kubeconfig []byte) (*apiserver.Client, error) {
	config, err := apiserver.Inline(kubeconfig, s.Allowed)
	if err != nil {
		return nil, err
	}
	return apiserver.Of(config)
}
