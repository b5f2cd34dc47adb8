// Package view reduces a proxy to what its configuration depends on: a node and a snapshot go in, a View comes out. The View is without the
// proxy's own identity, so that proxies which get the same configuration have equal views.
//
// A property of the proxy that a rule reads splits only the entries that read it, not the scope (Inputs). The cluster and the DNS domain are
// part of the scope nevertheless: the cluster decides the virtual addresses of all services that several clusters have, and through them
// listeners and the domains of virtual hosts; the domain decides the short names of every host.
//
// Owns: nothing; values are immutable.  Reads: store/mirror.  Never: builds anything; a clock; a socket.
//
// # Layers and variants
//
// Between scope and workload a view has a layer of variants. Entries of a scope (clusters, assignments, listeners,
// route configurations) that read inputs of the proxy are planned once for each set of these inputs, and only those
// entries split. Inputs are labels whose values some rule names, filters of extensions, and the locality, the network
// and the node where a rule or a service reads them.
//
// # A node's claims
//
// A claim of a node makes a plan of its own only if the configuration or a proof knows the claimed value:
//
//   - a network, if an endpoint or a Workload of the configuration is of it;
//   - a DNS domain, if it is that of the services;
//   - a cluster, if the configuration has a service, an endpoint or a Workload of it, or if the cluster's keys
//     verified the proxy's token (push/join).
//
// Plans differ by network only where a rule compares networks (failoverPriority), and where networks have gateways.
//
// Where the configuration knows the Pod that a proxy's token is bound to, it decides the proxy's labels, by which
// selectors pick the proxy, and its workload, as with istiod. Of other proxies the node says them.
// deploy/docs/security.md has a table of all claims.
//
// A proxy has an identity if its agent says so (NAVARCH_IDENTITY is sds), or if the agent is Istio's
// (xds.CapIdentity). Other proxies receive neither SDS nor mTLS.
package view
