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

// Clusters provides the token keys of other clusters, and reviews of the right to list Secrets (Access). Both come from
// the API server of the respective cluster. The other clusters are all clusters except the config cluster, which holds
// the mesh's Istio configuration. Safe for concurrent use.
type Clusters struct {
	memory string // folder for saved keys; empty: keys are not saved
	gone   func()
	log    *slog.Logger
	taken  *loop.Box[map[string]*apiserver.Client]
	now    atomic.Pointer[map[string]*otherCluster] // immutable
}

// otherCluster is the state of one cluster.
type otherCluster struct {
	api    *apiserver.Client
	keys   *attest.Keys
	access *Access
	stop   func() // ends the refreshing of keys
}

// NewClusters returns a Clusters that knows no cluster. The argument memory is the path of a folder that keeps the keys
// of each cluster for the next start. If it is empty, keys are not saved. After clusters were removed, Run calls the
// function gone, and waits until the function returns. The function should authenticate the callers of removed clusters
// again. Neither gone nor log may be nil.
func NewClusters(memory string, gone func(), log *slog.Logger) *Clusters {
	c := &Clusters{memory: memory, gone: gone, log: log}
	c.taken = loop.NewBox(func(_, newest map[string]*apiserver.Client) map[string]*apiserver.Client { return newest })
	c.now.Store(&map[string]*otherCluster{})
	return c
}

// Take sets the API servers of all other clusters, by cluster name. A cluster that the map lacks is removed. Take does
// not block. Run applies the newest map later. The map must not be modified afterwards. No API server may be nil.
func (c *Clusters) Take(servers map[string]*apiserver.Client) { c.taken.Put(servers) }

// Run applies the maps of Take and refreshes the keys of all clusters until ctx ends, and then returns the error of
// ctx. If the API client of a cluster has changed, the cluster's keys are fetched again. The previous keys stay valid
// until a fetch has succeeded. If attest.NewKeys fails, Run applies no more maps. Run returns this error when the keys
// of all clusters are no longer refreshed, at the latest when ctx ends. Calls of Run must not overlap.
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
			refreshing.Go(func() { _ = next.keys.Run(ctx) }) // it returns the context's error
		}
		c.now.Store(&now)
		forgotten := false
		for name, b := range before {
			if now[name] != b {
				b.stop()
				b.keys.EndSaving() // a fetch under way outlasts stop
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

// open prepares fetching a cluster's keys from its API server. The cluster's previous keys stay valid until the server
// has answered once. So wrong credentials in a changed Secret do not invalidate tokens.
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

// file returns the path for a cluster's saved keys. The hash avoids names that a file system could interpret.
func (c *Clusters) file(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(c.memory, "token-keys-"+hex.EncodeToString(sum[:8])+".json")
}

// forget deletes the saved keys of a removed cluster.
func (c *Clusters) forget(name string) {
	if c.memory == "" {
		return
	}
	if err := os.Remove(c.file(name)); err != nil && !os.IsNotExist(err) {
		c.log.Warn("saved token keys of a removed cluster cannot be deleted; they are not used",
			obs.KeyName, name, obs.KeyError, err)
	}
}

// Issuer returns the issuer of a cluster's tokens. The Name of the TokenIssuer is empty, since it is fetched with the
// keys. The second result is false if the cluster is unknown, or if Run has not applied a map with the cluster yet.
func (c *Clusters) Issuer(cluster string) (attest.TokenIssuer, bool) {
	r := (*c.now.Load())[cluster]
	if r == nil {
		return attest.TokenIssuer{}, false
	}
	return attest.TokenIssuer{Cluster: cluster, Keys: r.keys}, true
}

// Access returns the reviewer of access rights in a cluster. The result is nil if the cluster is unknown, or if Run has
// not applied a map with the cluster yet.
func (c *Clusters) Access(cluster string) *Access {
	if r := (*c.now.Load())[cluster]; r != nil {
		return r.access
	}
	return nil
}
