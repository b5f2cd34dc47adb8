// Package view derives the View of a proxy from its node and a snapshot. The View contains all facts on which the
// proxy's configuration depends. It does not contain the proxy's name, so the proxies of one workload can have equal
// Views. Proxies with equal Views get equal configuration.
//
// A property of the proxy that a rule reads is an input (Inputs). Proxies whose inputs differ share the scope (the
// facts about the outbound side that many proxies have in common), and all entries that do not read the input. The
// cluster and the DNS domain are part of the scope nevertheless, because they affect most entries. The cluster decides
// the virtual addresses of services that several clusters define, and thereby listeners and the domains of virtual
// hosts. The domain decides the short names of every host.
//
// Owns: nothing; values are immutable. Reads: store/mirror. Never: builds anything; a clock; a socket.
//
// # Layers and variants
//
// A View has three layers: the scope, the inputs of variants, and the workload. Some entries of a scope (clusters,
// assignments, listeners, route configurations) read inputs of the proxy. These entries are planned once for each set
// of inputs. The type Inputs lists all inputs; a property that no rule or service reads is not an input.
//
// # A node's claims
//
// A claim of a node leads to a separate plan only if the claimed value is known (push/join):
//
//   - a network is known if an endpoint, a Workload or a gateway of the configuration belongs to it
//   - a DNS domain is known if it is the domain of the services
//   - a cluster is known if it is the config cluster, or if a service, an endpoint or a Workload of the configuration
//     belongs to it, or if the proxy's credential states it
//
// Plans differ by network only if a rule compares networks (failoverPriority), if networks have gateways, or if the
// proxy's agent resolves names.
//
// If a proxy's token is bound to a Pod of the configuration, the configuration decides the labels and the workload of
// the proxy, as in istiod. Selectors are compared with these labels. For all other proxies the node's claim decides.
// deploy/docs/security-workloads.md has a table of all claims.
//
// A proxy has certificates (xds.CapIdentity) if its agent states so in NAVARCH_IDENTITY, or if the agent is Istio's.
// All other proxies receive neither SDS nor mTLS.
package view
