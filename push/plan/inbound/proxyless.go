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

// binds lists the addresses, beside the workload's own addresses, of the listeners that a gRPC server may request. All
// are planned, because the control plane learns the address only from the name in the server's request.
var binds = []string{"0.0.0.0", "::", "127.0.0.1", "::1"}

// planServers plans the listeners of a workload without a proxy. For each port that a service names, it plans one
// listener at each address.
func (wl *Workload) planServers(yield func()) {
	wl.found = append(wl.found, wl.in.NotPatched(wl.key.Filters)...)
	wl.found = append(wl.found, proxyless.Problems(wl.policies.All())...)
	closed, enforced, servers := wl.key.Closed || wl.demandsTokens(), wl.policies, wl.servers()
	if wl.tooLarge(len(servers), nil) {
		closed, enforced = true, policies.List()
	}
	for _, s := range servers {
		mtls, ok := wl.acceptsMTLS(s.service, s.port)
		if !ok {
			continue
		}
		for _, bind := range slices.Concat(binds, wl.key.Addresses.All()) {
			wl.plan(proxyless.Server{Bind: bind, Port: s.port, MTLS: mtls, Closed: closed, Policies: enforced, Mesh: wl.in.Meshes.Listener})
			yield()
		}
	}
}

// server is a port of a workload without a proxy, with the first service that names the port.
type server struct {
	service *model.Service
	port    uint32
}

// servers returns the ports that services name, each once.
func (wl *Workload) servers() (all []server) {
	seen := map[uint32]bool{}
	for _, svc := range wl.services {
		for _, p := range wl.service(svc) {
			if !seen[p.Port] {
				seen[p.Port] = true
				all = append(all, server{svc, p.Port})
			}
		}
	}
	return all
}

// demandsTokens reports whether a RequestAuthentication has rules for tokens. gRPC servers cannot verify tokens, so the
// workload's servers then refuse all callers. demandsTokens also adds a problem for each such RequestAuthentication,
// and for each policy with dry run. gRPC servers do not count dry runs.
func (wl *Workload) demandsTokens() (demands bool) {
	for _, p := range wl.authentications.All() {
		if len(model.Authentication(p).GetJwtRules()) > 0 {
			demands = true
			wl.found = append(wl.found, input.Problem{Key: p.Key, Field: "spec.jwtRules", Code: problem.NotSupported, Severity: problem.Error,
				Message: "servers do not verify tokens (proxyless gRPC); servers that the policy selects refuse all calls"})
		}
	}
	for _, p := range wl.policies.All() {
		if p.Spec.GetDryRun() != model.DryRun_DRY_RUN_NONE {
			wl.found = append(wl.found, input.Problem{Key: p.Key, Field: "metadata.annotations[istio.io/dry-run]",
				Code: problem.NoEffect, Severity: problem.Warning,
				Message: "servers do not count the calls of a dry run (proxyless gRPC)"})
		}
	}
	return demands
}

// acceptsMTLS decides about a server's mTLS. The first result is true if the server accepts only mTLS, and false if it
// accepts only plaintext. gRPC servers cannot accept both. If a PeerAuthentication permits both, a server with a
// certificate accepts mTLS if it has the label that declares mTLS to clients (istio:
// pilot/pkg/networking/grpcgen/lds.go). The second result is false if mTLS is required and the server has no
// certificate. Such a server gets no listener.
func (wl *Workload) acceptsMTLS(svc *model.Service, port uint32) (mtls, ok bool) {
	identity := wl.key.Caps.Has(xds.CapIdentity)
	switch wl.policyMode(port) {
	case listener.Strict:
		if !identity {
			wl.found = append(wl.found, input.Problem{Key: svc.Key, Field: "spec.ports", Code: problem.Required,
				Severity: problem.Error, Message: fmt.Sprintf("port %d of an application without a certificate provider: "+
					"a PeerAuthentication demands mTLS, and its server gets no listener (proxyless gRPC)", port)})
		}
		return true, identity
	case listener.Permissive:
		return wl.key.Labelled && identity, true
	case listener.Plain, listener.Refused:
	}
	return false, true
}
