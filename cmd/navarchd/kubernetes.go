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

// newAPIServer is the API server of the config cluster; nil: the configuration comes from files alone.
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

// clusterFacts is what this process knows of the identities of the config cluster.
type clusterFacts struct {
	keys   attest.KeysConfig                               // where their issuer comes from
	remote func(cluster string) (attest.TokenIssuer, bool) // issuers of other clusters; nil: there are none
	// reviewer is asked about tokens that cannot be verified here (--token-review); nil: nobody is.
	reviewer attest.Reviewer
	gone     func(attest.Caller) error // whose Pod or account is not there any more; nil: that is not known
	// ca is where istiod has the mesh's CA; nil: nobody looks there, since this process does not sign, or is given a folder (--cacerts).
	ca *istioca.Secrets
}

// clusterFacts come from the API server, and from the records, nil where this process does not follow them.
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

// ownCA is where the user's own CA is; nil: there is none.
func (c *config) ownCA(cluster clusterFacts) keyring.CASource {
	switch {
	case c.caCerts != "":
		return keyring.Folder(c.caCerts)
	case cluster.ca != nil:
		return cluster.ca
	}
	return nil
}

// foundKeys is where the issuer and the keys of the config cluster's tokens come from, unless --token-issuer says it: its API server, and
// the folder of what this process remembers. What is remembered counts for this cluster, at this address, alone.
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

// addOtherClusters has other clusters asked about the identities of callers, as the leader stores how, unless the config cluster is not in Kubernetes, or nobody calls this
// process.
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
	a.add(part{tasks: []loop.Task{{Name: "API servers of other clusters", Run: servers.Run}, {Name: "token keys of other clusters", Run: a.clusters.Run}}})
	return nil
}

// shownClusters are the config cluster, and those that Secrets name: one is read once the leader has said up to when.
func shownClusters(own string, named map[string]string, read func(cluster string) asof.Read) []inspect.Cluster {
	all := []inspect.Cluster{{Name: own, Read: !read("").Until.IsZero()}}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		all = append(all, inspect.Cluster{Name: name, Secret: named[name], Read: !read(name).Until.IsZero()})
	}
	return all
}

// authoriserOf says who may have private keys: the API server of a service account's cluster; of clusters that have none (folders) the bindings of the
// snapshot.
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

// reviewed has the API server of a service account's cluster review its rights.
type reviewed struct {
	own    *kube.Access                      // of the config cluster
	of     func(cluster string) *kube.Access // of other clusters that Secrets name; nil: no Secret does
	others access.Authoriser                 // for service accounts of other clusters
}

// MayListSecrets implements access.Authoriser.
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
