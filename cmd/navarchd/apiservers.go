package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// apiServersPath leads to the EndpointSlices of the Service default/kubernetes: the API servers of a cluster write their own addresses there.
const apiServersPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"

// apiServersEvery is the interval at which they are read.
const apiServersEvery = 30 * time.Second

// apiServers follows the addresses of the cluster's API servers. Where they reach webhooks by way of somebody else (konnectivity), their reviews come from
// other addresses, and have no place before others.
type apiServers struct {
	api   *apiserver.Client
	log   *slog.Logger
	known atomic.Pointer[map[netip.Addr]bool] // nil: not read yet
}

// has says whether an address is an API server's, as far as this process knows.
func (a *apiServers) has(addr netip.Addr) bool {
	known := a.known.Load()
	return known != nil && (*known)[addr.Unmap()]
}

// run keeps the addresses up to date. The last ones stand while there are no newer ones.
func (a *apiServers) run(ctx context.Context) error {
	failed := false
	for {
		err := a.read(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			a.log.Warn("the API servers' addresses cannot be read: their reviews have no place before those of others", obs.KeyError, err)
		}
		failed = err != nil
		if loop.Pause(ctx, apiServersEvery) != nil {
			return nil
		}
	}
}

func (a *apiServers) read(ctx context.Context) error {
	var slice discoveryv1.EndpointSlice
	if err := a.api.Do(ctx, http.MethodGet, apiServersPath, nil, &slice); err != nil {
		return fmt.Errorf("EndpointSlice default/kubernetes: %w", err)
	}
	known := map[netip.Addr]bool{}
	for _, e := range slice.Endpoints {
		for _, text := range e.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				known[addr.Unmap()] = true
			}
		}
	}
	a.known.Store(&known)
	return nil
}
