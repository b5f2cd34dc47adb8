// Package view derives the View of a proxy from its node (core.v3.Node) and a snapshot of the configuration. The View
// contains all facts on which the proxy's resources depend. It does not contain the proxy's name, so the proxies of one
// workload can have equal Views. Proxies with equal Views get equal resources.
//
// Envoy's resources of the outbound side are planned as entries: clusters, endpoint assignments, listeners and route
// configurations. The scope contains the facts about the outbound side that many proxies have in common. A property of
// the proxy that only some entries read is an input (Inputs). Proxies that differ only in inputs share the scope, and
// all entries that do not read these inputs. The Kubernetes cluster and the DNS domain of the proxy belong to the
// scope, because they affect most entries. The Kubernetes cluster decides the virtual addresses of services that
// several Kubernetes clusters define. The domain decides the short names of hosts.
//
// Owns: nothing; values are immutable. Reads: store/mirror. Never: builds resources; reads a clock; opens a socket.
//
// # Layers and variants
//
// A View has three layers: the scope, the inputs, and the workload (the facts about the inbound side). An entry that
// reads inputs is planned once for each set of their values. Each of these plans is a variant of the entry. The type
// Inputs lists all inputs. An input that no rule or service reads is zero.
//
// # A node's claims
//
// The values in a node are claims of the proxy, which are not verified. A claimed network, DNS domain or Kubernetes
// cluster leads to a separate plan only if the value is known:
//
//   - A network is known if an endpoint, a Workload or a gateway of the configuration belongs to it.
//   - A DNS domain is known if it is the domain of the services.
//   - The config cluster is known. Any other cluster is known if a service, an endpoint or a Workload of the
//     configuration belongs to it, or if the proxy's credential states it.
//
// Plans differ by network only if a rule compares networks (failoverPriority), if networks have gateways, or if the
// proxy's agent resolves names.
//
// A proxy's token may be bound to a Pod that the configuration contains. In this case the configuration decides the
// labels and the workload of the proxy, as in istiod. For all other proxies the node's claim decides. Selectors are
// compared with the resulting labels. deploy/docs/security-workloads.md has a table of all claims.
//
// A proxy has certificates (xds.CapIdentity) if its agent states this by NAVARCH_IDENTITY, or if the agent is Istio's.
// The configuration of all other proxies has neither SDS nor mTLS.
package view
