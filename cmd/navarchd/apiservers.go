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

// apiServersPath is the path of the EndpointSlice of the Service default/kubernetes. The API servers of a cluster write
// their own addresses into this EndpointSlice.
const apiServersPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"

// apiServersEvery is the interval at which this EndpointSlice is read.
const apiServersEvery = 30 * time.Second

// apiServers follows the addresses of the cluster's API servers, whose admission reviews have priority. Reviews
// through a tunnel (konnectivity) come from other addresses, and have no priority.
type apiServers struct {
	api   *apiserver.Client
	log   *slog.Logger
	known atomic.Pointer[map[netip.Addr]bool] // nil: not read yet
}

// has reports whether an address is known as the address of an API server. It returns false before the first successful
// read.
func (a *apiServers) has(addr netip.Addr) bool {
	known := a.known.Load()
	return known != nil && (*known)[addr.Unmap()]
}

// run updates the addresses until ctx ends, and returns nil. After an error the previous addresses stay in use.
func (a *apiServers) run(ctx context.Context) error {
	failed := false
	for {
		err := a.read(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			a.log.Warn("the API servers' addresses cannot be read: admission reviews from new addresses have no priority", obs.KeyError, err)
		}
		failed = err != nil
		if loop.Pause(ctx, apiServersEvery) != nil {
			return nil
		}
	}
}

// read reads the addresses once.
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
