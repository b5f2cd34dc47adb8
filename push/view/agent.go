package view

import (
	"strconv"

	"navarch.io/navarch/push/xds"
)

// agentCaps adds the capabilities that the node's list of extensions does not contain. They are capabilities of the
// proxy's agent, of its bootstrap, and of Istio's builds of Envoy.
func (n *Node) agentCaps() {
	if hasIdentity(n.Metadata) {
		n.Caps |= xds.CapIdentity
	}
	if n.Kind != Proxyless && n.Caps.Has(xds.CapIdentity) {
		n.Caps |= readsFiles(n.Metadata)
	}
	if n.Kind == Sidecar && istios(n.Metadata) { // Istio's builds of Envoy have this capability, even if the node does not list it
		n.Caps |= xds.CapDynamicForward
	}
	if n.Kind == Sidecar && selfDiscovery(n.Metadata) {
		n.Caps |= xds.CapSelfDiscovery
	}
	if fetchesModules(n.Metadata) {
		n.Caps |= xds.CapWasmFetch
	}
}

// istios reports whether the proxy's agent is Istio's. Istio's agent states ISTIO_VERSION, and no NAVARCH_IDENTITY.
func istios(metadata map[string]string) bool {
	_, ours := metadata["NAVARCH_IDENTITY"]
	return !ours && metadata["ISTIO_VERSION"] != ""
}

// selfDiscovery reports whether the proxy's bootstrap has a cluster for its own workload. Agents of Istio and of
// Navarch add this cluster if their environment variable ISTIO_META_ENABLE_SELF_DISCOVERY is true.
func selfDiscovery(metadata map[string]string) bool {
	asked, err := strconv.ParseBool(metadata["ENABLE_SELF_DISCOVERY"])
	return err == nil && asked
}

// hasIdentity reports whether a proxy gets certificates from its agent. Navarch's agent states this by
// NAVARCH_IDENTITY. The value is "sds" for an Envoy, and "provider" for an application with gRPC's xDS client and a
// certificate provider in its bootstrap. Istio's agent always provides certificates.
func hasIdentity(metadata map[string]string) bool {
	if stated, ok := metadata["NAVARCH_IDENTITY"]; ok {
		if metadata["GENERATOR"] == "grpc" {
			return stated == "provider"
		}
		return stated == "sds"
	}
	return istios(metadata)
}

// readsFiles returns the capabilities of the proxy's agent to serve files as Secrets. Istio's agents serve files with
// certificates and CAs. Navarch's agents serve files only if NAVARCH_FILES is "sds". They also serve revocation lists.
// If NAVARCH_FILE_OWNERS is "true" too, they bound the secrets of each namespace. Without these capabilities Envoy
// reads the files itself.
func readsFiles(metadata map[string]string) xds.Caps {
	if _, ours := metadata["NAVARCH_IDENTITY"]; !ours {
		return xds.CapFileSecrets
	}
	if metadata["NAVARCH_FILES"] != "sds" {
		return 0
	}
	if metadata["NAVARCH_FILE_OWNERS"] == "true" {
		return xds.CapFileSecrets | xds.CapFileLists | xds.CapFileOwners
	}
	return xds.CapFileSecrets | xds.CapFileLists
}

// fetchesModules reports whether a proxy's agent fetches WebAssembly modules, and replaces their URLs in Envoy's
// configuration with file names. Istio's agent does this if the proxy is an Envoy (istio pkg/istio-agent, pkg/wasm).
func fetchesModules(metadata map[string]string) bool {
	return istios(metadata) && metadata["GENERATOR"] == ""
}
