package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/source/kube"
)

// Servers follows how the API servers of other clusters are reached, by the Secrets and the rules that Clusters has. Every process that asks other
// clusters about the identities of callers has it, whoever leads; what is wrong with Secrets the leader says (Clusters.Problems).
type Servers struct {
	Config
	secrets *kube.Secrets
	notify  func(map[string]*apiserver.Client)
	logged  *obs.Sampled // lines that a Secret can bring about

	clients map[string]*apiserver.Client // take's; the same
	digests map[string][sha256.Size]byte // of the kubeconfigs that clients are made of

	mu      sync.Mutex        // guards what follows
	named   map[string]string // the Secret of each cluster, also of one whose kubeconfig is refused
	lacking bool              // the right to read the Secrets is missing, and the log says so
}

// NewServers reads the kubeconfig of the config cluster; nothing is asked before Run. Of the Config Source and Expect do not count. notify is called with
// the API servers of all other clusters, by name, once the Secrets were listed in full and then whenever they are others, by the goroutine of Run, which
// waits for it; the map is its to keep. A kubeconfig that is refused changes nothing of a cluster that is known already.
func NewServers(c Config, notify func(map[string]*apiserver.Client)) (*Servers, error) {
	if err := apiserver.CheckOptions(c.Allowed); err != nil {
		return nil, err
	}
	s := newServers(c, notify)
	var err error
	s.secrets, err = kube.NewSecrets(c.Kubeconfig, c.Namespace, Label, s.take, s.cannot)
	return s, err
}

func newServers(c Config, notify func(map[string]*apiserver.Client)) *Servers {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Servers{Config: c, notify: notify, logged: obs.NewSampled(c.Log)}
}

// Run follows the Secrets until ctx ends, whose error it returns. What is known stays while they cannot be read.
func (s *Servers) Run(ctx context.Context) error { return s.secrets.Run(ctx) }

// Named is the Secret (namespace/name) of each other cluster that Secrets name, by the cluster's name, as last read.
func (s *Servers) Named() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.named)
}

// cannot logs why the Secrets cannot be read: that the right is missing once, for where there is one cluster that is how it is to be.
func (s *Servers) cannot(wrong string, forbidden bool) {
	s.mu.Lock()
	before := s.lacking
	s.lacking = forbidden
	s.mu.Unlock()
	switch {
	case wrong == "":
	case forbidden && before:
	case forbidden:
		s.logged.Warn("tokens of other clusters are not verified, for this process lacks the right to list and watch Secrets of its namespace", "", obs.KeyError, wrong)
	default:
		s.logged.Warn("Secrets that name other clusters cannot be read; what is known of these clusters stands", "", obs.KeyError, wrong)
	}
}

// take takes all Secrets, and notifies where API servers are others. One goroutine calls it (kube.NewSecrets).
func (s *Servers) take(all []*corev1.Secret) {
	wanted, _ := choose(all, s.Own)
	clients, digests, named := map[string]*apiserver.Client{}, map[string][sha256.Size]byte{}, map[string]string{}
	for _, w := range wanted {
		named[w.cluster] = s.Namespace + "/" + w.secret
		client, digest := s.clients[w.cluster], s.digests[w.cluster]
		if client == nil || digest != w.digest {
			next, err := s.clientOf(w)
			if err != nil {
				s.logged.Warn("the kubeconfig of a cluster is not used", w.cluster, keyCluster, w.cluster, "secret", w.secret, obs.KeyError, err)
			} else {
				client, digest = next, w.digest
			}
		}
		if client != nil {
			clients[w.cluster], digests[w.cluster] = client, digest
		}
	}
	s.mu.Lock()
	s.named = named
	s.mu.Unlock()
	changed := s.clients == nil || !maps.Equal(clients, s.clients)
	if s.clients, s.digests = clients, digests; changed {
		s.notify(maps.Clone(clients))
	}
}

// clientOf is a client of a cluster's API server; nothing is asked.
func (s *Servers) clientOf(w candidate) (*apiserver.Client, error) {
	config, err := apiserver.Inline(w.kubeconfig, s.Allowed)
	if err != nil {
		return nil, err
	}
	return apiserver.Of(config)
}
