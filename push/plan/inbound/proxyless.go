package inbound

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/proxyless"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// binds are the addresses of listeners that a gRPC server may ask for, beside the workload's own: where a server listens is only in the
// name that it asks for.
var binds = []string{"0.0.0.0", "::", "127.0.0.1", "::1"}

// planServers plans the listeners of a workload without a proxy, for each port that a service names.
func (wl *Workload) planServers(rest func()) {
	wl.found = append(wl.found, wl.in.NotPatched(wl.key.Filters)...)
	wl.found = append(wl.found, proxyless.Problems(wl.policies.All())...)
	closed := wl.key.Closed || wl.demandsTokens()
	seen := map[uint32]bool{}
	for _, svc := range wl.services {
		for _, p := range wl.service(svc) {
			if seen[p.Port] {
				continue
			}
			seen[p.Port] = true
			mtls, ok := wl.takesMTLS(svc, p.Port)
			if !ok {
				continue
			}
			for _, bind := range slices.Concat(binds, wl.key.Addresses.All()) {
				wl.plan(proxyless.Server{Bind: bind, Port: p.Port, MTLS: mtls, Closed: closed, Policies: wl.policies, Mesh: wl.in.Meshes.Listener})
				rest()
			}
		}
	}
}

// demandsTokens says whether a RequestAuthentication has the server refuse tokens, which it cannot: then nobody may call it. What is only to be counted is not.
func (wl *Workload) demandsTokens() (demands bool) {
	for _, p := range wl.authentications.All() {
		if len(model.Authentication(p).GetJwtRules()) > 0 {
			demands = true
			wl.found = append(wl.found, input.Problem{Key: p.Key, Field: "spec.jwtRules", Code: problem.NotSupported, Severity: problem.Error,
				Message: "servers verify no tokens (proxyless gRPC); nobody may call servers that the policy selects"})
		}
	}
	for _, p := range wl.policies.All() {
		if p.Spec.GetDryRun() != model.DryRun_DRY_RUN_NONE {
			wl.found = append(wl.found, input.Problem{Key: p.Key, Field: "metadata.annotations[istio.io/dry-run]", Code: problem.NoEffect, Severity: problem.Warning,
				Message: "servers count nothing of what would be refused (proxyless gRPC)"})
		}
	}
	return demands
}

// takesMTLS says whether a server takes mTLS alone or connections in the clear alone: gRPC's client knows no way to take both. Where a
// PeerAuthentication has both taken, the label decides by which clients are told, as with Istio's control plane
// (pilot/pkg/networking/grpcgen/lds.go). False: the listener is left out, for mTLS is demanded and cannot be had.
func (wl *Workload) takesMTLS(svc *model.Service, port uint32) (mtls, ok bool) {
	identity := wl.key.Caps.Has(xds.CapIdentity)
	switch wl.stated(port) {
	case listener.Strict:
		if !identity {
			wl.found = append(wl.found, input.Problem{Key: svc.Key, Field: "spec.ports", Code: problem.Required, Severity: problem.Error,
				Message: fmt.Sprintf("port %d of an application without a certificate provider: a PeerAuthentication demands mTLS, and its server gets no listener (proxyless gRPC)", port)})
		}
		return true, identity
	case listener.Permissive:
		return wl.key.Labelled && identity, true
	case listener.Plain, listener.Refused:
	}
	return false, true
}
