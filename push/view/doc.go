// Package view derives from a node and a snapshot the View of a proxy: every fact that its configuration depends on.
// The View does not contain the proxy's own identity, so proxies that get the same configuration have equal Views.
//
// A property of the proxy that a rule reads splits only the entries that read it, not the scope (Inputs). The cluster
// and the DNS domain are nevertheless part of the scope. The cluster decides the virtual addresses of all services that
// several clusters define, and with them listeners and the domains of virtual hosts. The domain decides the short names
// of every host.
//
// Owns: nothing; values are immutable.  Reads: store/mirror.  Never: builds anything; a clock; a socket.
//
// # Layers and variants
//
// A View has three layers: the scope, the inputs of variants, and the workload. Entries of a scope (clusters,
// assignments, listeners, route configurations) that read inputs of the proxy are planned once for each set of these
// inputs, and only those entries split. Inputs are labels whose values some rule names, filters of extensions, and the
// locality, the network and the node where a rule or a service reads them.
//
// # A node's claims
//
// A claim of a node leads to a separate plan only if the configuration or a proof knows the claimed value:
//
//   - a network, if an endpoint or a Workload of the configuration belongs to it;
//   - a DNS domain, if it is the domain of the services;
//   - a cluster, if a service, an endpoint or a Workload of the configuration belongs to it, or if the cluster's keys
//     verified the proxy's token (push/join).
//
// Plans differ by network only where a rule compares networks (failoverPriority), and where networks have gateways.
//
// Where the configuration knows the Pod that a proxy's token is bound to, the configuration decides the proxy's labels
// (by which selectors select the proxy) and its workload, as in istiod. For other proxies the node's own statement
// counts. deploy/docs/security.md has a table of all claims.
//
// A proxy has an identity if its agent states one (NAVARCH_IDENTITY is sds), or if the agent is Istio's
// (xds.CapIdentity). Other proxies receive neither SDS nor mTLS.
package view
