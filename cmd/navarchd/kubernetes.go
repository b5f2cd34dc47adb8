package main

import (
	"context"
	"fmt"
	"path/filepath"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/attest/kube"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/mirror"
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

// authoriserOf says who may have private keys: the API server where there is one, for the service accounts of its cluster; for others the
// bindings of the snapshot.
func authoriserOf(api *apiserver.Client, current func() *mirror.Snapshot) access.Authoriser {
	bindings := access.Snapshots{Current: current}
	if api == nil {
		return bindings
	}
	return reviewed{reviews: kube.NewAccess(api), others: bindings}
}

// reviewed has the API server of the config cluster review the rights of service accounts.
type reviewed struct {
	reviews *kube.Access
	others  access.Authoriser // for other clusters' service accounts
}

// MayListSecrets implements access.Authoriser.
func (r reviewed) MayListSecrets(ctx context.Context, who view.Identity) (access.Answer, error) {
	if who.Cluster != "" {
		return r.others.MayListSecrets(ctx, who)
	}
	allowed, why, err := r.reviews.MayListSecrets(ctx, who.Namespace, who.Account)
	return access.Answer{Allowed: allowed, Why: why}, err
}
