package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// Clusters knows of each other cluster how tokens of its service accounts are verified and who says what its gateways may have: its own API server,
// which is asked for its issuer and keys as that of the config cluster is, and for reviews of rights. Safe for concurrent use.
type Clusters struct {
	memory string // folder in which keys are kept; empty: none are
	gone   func()
	log    *slog.Logger
	taken  *loop.Box[map[string]*apiserver.Client]
	now    atomic.Pointer[map[string]*otherCluster] // immutable
}

// otherCluster is what is known of one.
type otherCluster struct {
	api    *apiserver.Client
	keys   *attest.Keys
	access *Access
	stop   func() // ends the refreshing of its keys
}

// NewClusters knows of none yet. memory is a folder in which the keys of each are kept for the next start; empty: they are not. Run calls gone each time
// that clusters are not known any more, so that whoever is served by their tokens can be looked at again.
func NewClusters(memory string, gone func(), log *slog.Logger) *Clusters {
	c := &Clusters{memory: memory, gone: gone, log: log, taken: loop.NewBox(func(_, newest map[string]*apiserver.Client) map[string]*apiserver.Client { return newest })}
	c.now.Store(&map[string]*otherCluster{})
	return c
}

// Take says which other clusters there are, and their API servers, by name. It waits for none of them.
func (c *Clusters) Take(servers map[string]*apiserver.Client) { c.taken.Put(servers) }

// Run keeps the keys of all clusters fresh until ctx ends, whose error it returns.
func (c *Clusters) Run(ctx context.Context) error {
	var refreshing sync.WaitGroup
	defer refreshing.Wait()
	for {
		servers, err := c.taken.Get(ctx)
		if err != nil {
			return err
		}
		before, now := *c.now.Load(), make(map[string]*otherCluster, len(servers))
		for name, api := range servers {
			if now[name] = before[name]; now[name] != nil && now[name].api == api {
				continue
			}
			ctx, cancel := context.WithCancel(ctx)
			next, err := c.open(name, api, before[name])
			if err != nil {
				cancel()
				return err
			}
			next.stop, now[name] = cancel, next
			refreshing.Go(func() { _ = next.keys.Run(ctx) }) // its error is the context's
		}
		c.now.Store(&now)
		forgotten := false
		for name, b := range before {
			if now[name] != b {
				b.stop()
			}
			if now[name] == nil {
				c.forget(name)
				forgotten = true
			}
		}
		if forgotten {
			c.gone()
		}
	}
}

// open has the keys of a cluster asked of its API server. Those that were known before stand until it has answered once: credentials that are wrong take
// nobody's identity away.
func (c *Clusters) open(name string, api *apiserver.Client, before *otherCluster) (*otherCluster, error) {
	cfg := attest.KeysConfig{Ask: Keys(api), Whose: fmt.Sprintf("cluster %s at %s", name, api.Address()), Log: c.log}
	if before != nil {
		cfg.Before = before.keys
	}
	if c.memory != "" {
		cfg.Memory = c.file(name)
	}
	keys, err := attest.NewKeys(cfg)
	return &otherCluster{api: api, keys: keys, access: NewAccess(api)}, err
}

// file is where the keys of a cluster are kept. Its name says nothing that a file system could understand otherwise.
func (c *Clusters) file(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(c.memory, "token-keys-"+hex.EncodeToString(sum[:8])+".json")
}

// forget drops what is kept of a cluster that no Secret names any more.
func (c *Clusters) forget(name string) {
	if c.memory == "" {
		return
	}
	if err := os.Remove(c.file(name)); err != nil && !os.IsNotExist(err) {
		c.log.Warn("the saved token keys of a cluster that is no longer configured cannot be deleted; they are not used", obs.KeyName, name, obs.KeyError, err)
	}
}

// Issuer is the one of a cluster's tokens, whose name is found with its keys; false: no Secret names the cluster.
func (c *Clusters) Issuer(cluster string) (attest.TokenIssuer, bool) {
	r := (*c.now.Load())[cluster]
	if r == nil {
		return attest.TokenIssuer{}, false
	}
	return attest.TokenIssuer{Cluster: cluster, Keys: r.keys}, true
}

// Access asks a cluster's API server who may list Secrets there; nil: no Secret names the cluster.
func (c *Clusters) Access(cluster string) *Access {
	if r := (*c.now.Load())[cluster]; r != nil {
		return r.access
	}
	return nil
}
