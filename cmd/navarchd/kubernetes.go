package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/attest/kube"
	"navarch.io/navarch/ca/istioca"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/source/remote"
)

// newAPIServer returns a client of the API server of the config cluster (which stores the configuration). It returns
// nil if all configuration comes from files.
func newAPIServer(c *config) (*apiserver.Client, error) {
	if !c.kubernetes() {
		return nil, nil
	}
	api, err := apiserver.New(c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	return api, nil
}

// clusterFacts has the sources by which callers from Kubernetes clusters are authenticated.
type clusterFacts struct {
	keys   attest.KeysConfig                               // source of the config cluster's token issuer and its keys
	remote func(cluster string) (attest.TokenIssuer, bool) // issuers of other clusters; nil: no other cluster is read
	// reviewer verifies tokens that cannot be verified here (--token-review); nil: no reviews.
	reviewer attest.Reviewer
	gone     func(attest.Caller) error // returns an error if the caller's Pod or account was deleted; nil: deletions are unknown
	// ca reads istiod's CA Secrets; nil: this process does not sign, or has a folder (--cacerts).
	ca *istioca.Secrets
}

// clusterFacts returns the sources that the configuration permits. records is nil if this process does not read the
// stored records.
func (a *assembly) clusterFacts(records *mirror.Mirror) clusterFacts {
	facts := clusterFacts{keys: a.config.foundKeys(a.api)}
	if a.api != nil && a.config.has(roleCA) && a.config.hasKeyring() && a.config.caCerts == "" {
		facts.ca = istioca.New(a.api, a.config.env.podNamespace, a.log)
	}
	if a.clusters != nil {
		facts.remote = a.clusters.Issuer
	}
	if a.config.tokenReview {
		facts.reviewer = kube.NewReviews(a.api, a.config.cluster)
	}
	if a.config.kubernetes() && records != nil {
		sound := func() bool {
			s := records.Status()
			return s.Away == nil && s.Alarm == nil && len(s.Held) == 0 && s.Restored.IsZero()
		}
		facts.gone = (&identities.Living{Snapshot: records.Current, Sound: sound, Read: a.read.Of, Cluster: a.config.cluster}).Refused
	}
	return facts
}

// ownCA returns the source of the user's own CA. It returns nil if no source is configured.
func (c *config) ownCA(cluster clusterFacts) keyring.CASource {
	switch {
	case c.caCerts != "":
		return keyring.Folder(c.caCerts)
	case cluster.ca != nil:
		return cluster.ca
	}
	return nil
}

// foundKeys returns the source of the issuer and of the keys for the config cluster's tokens. The source is used unless
// --token-issuer is set. Issuer and keys come from the cluster's API server, and are saved in the state directory.
// Saved keys are ignored if the config cluster's name or the address of its API server has changed.
func (c *config) foundKeys(api *apiserver.Client) attest.KeysConfig {
	if api == nil {
		return attest.KeysConfig{}
	}
	found := attest.KeysConfig{Ask: kube.Keys(api), Whose: fmt.Sprintf("cluster %s at %s", c.cluster, api.Address())}
	if c.stateDir != "" {
		found.Memory = filepath.Join(c.stateDir, "token-keys.json")
	}
	return found
}

// addOtherClusters adds the verification of identities from other clusters. The leader stores the credentials for these
// clusters. addOtherClusters does nothing without a config cluster, or in a process without gRPC addresses.
func (a *assembly) addOtherClusters(others remote.Config) error {
	c := a.config
	if !c.kubernetes() || !c.speaksGRPC() {
		return nil
	}
	a.clusters = kube.NewClusters(c.stateDir, func() { everybody{a}.Recheck() }, a.log)
	servers, err := remote.NewServers(others, a.clusters.Take)
	if err != nil {
		return err
	}
	a.pages.Clusters = func() []inspect.Cluster { return shownClusters(c.cluster, servers.Named(), a.read.Of) }
	a.add(part{tasks: []loop.Task{{Name: "API servers of other clusters", Run: servers.Run},
		{Name: "token keys of other clusters", Run: a.clusters.Run}}})
	return nil
}

// shownClusters lists the config cluster and the clusters that Secrets name. Read is true for a cluster once a leader
// has recorded how recent the cluster's records are (asof.Read.Until).
func shownClusters(own string, named map[string]string, read func(cluster string) asof.Read) []inspect.Cluster {
	all := []inspect.Cluster{{Name: own, Read: !read("").Until.IsZero()}}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		all = append(all, inspect.Cluster{Name: name, Secret: named[name], Read: !read(name).Until.IsZero()})
	}
	return all
}

// authoriserOf returns the authoriser, which decides whether a service account may get private keys. The authoriser
// sends a request to the API server of the service account's cluster. If all configuration comes from files, or that
// cluster is not known yet, it uses the role bindings in the snapshot.
func authoriserOf(api *apiserver.Client, clusters *kube.Clusters, current func() *mirror.Snapshot) access.Authoriser {
	bindings := access.Snapshots{Current: current}
	if api == nil {
		return bindings
	}
	of := func(cluster string) *kube.Access { return nil }
	if clusters != nil {
		of = clusters.Access
	}
	return reviewed{own: kube.NewAccess(api), of: of, others: bindings}
}

// reviewed sends access reviews to the API server of a service account's cluster.
type reviewed struct {
	own    *kube.Access                      // of the config cluster
	of     func(cluster string) *kube.Access // returns the access of another cluster; nil: the cluster is not known (yet)
	others access.Authoriser                 // for service accounts of clusters that are not known (yet)
}

// MayListSecrets implements access.Authoriser, by an access review at the API server of the service account's
// cluster. For another cluster that is not known (yet), it uses the role bindings in the snapshot. Errors are those of
// the request.
func (r reviewed) MayListSecrets(ctx context.Context, who view.Identity) (access.Answer, error) {
	reviews := r.own
	if who.Cluster != "" {
		if reviews = r.of(who.Cluster); reviews == nil {
			return r.others.MayListSecrets(ctx, who)
		}
	}
	allowed, why, err := reviews.MayListSecrets(ctx, who.Namespace, who.Account)
	return access.Answer{Allowed: allowed, Why: why}, err
}
