package view

import (
	"strconv"

	"navarch.io/navarch/push/xds"
)

// agentCaps adds what the proxy's agent, and Istio's builds of Envoy, are able to do, which no list of extensions says.
func (n *Node) agentCaps() {
	if hasIdentity(n.Metadata) {
		n.Caps |= xds.CapIdentity
	}
	if n.Kind == Sidecar && n.Caps.Has(xds.CapIdentity) {
		n.Caps |= readsFiles(n.Metadata)
	}
	if n.Kind == Sidecar && istios(n.Metadata) { // Istio's builds of Envoy have it, whatever of its extensions a node lists
		n.Caps |= xds.CapDynamicForward
	}
	if n.Kind == Sidecar && selfDiscovery(n.Metadata) {
		n.Caps |= xds.CapSelfDiscovery
	}
	if fetchesModules(n.Metadata) {
		n.Caps |= xds.CapWasmFetch
	}
}

// istios says whether a proxy's agent is Istio's: it states its version, and not NAVARCH_IDENTITY.
func istios(metadata map[string]string) bool {
	_, ours := metadata["NAVARCH_IDENTITY"]
	return !ours && metadata["ISTIO_VERSION"] != ""
}

// selfDiscovery says whether the proxy's bootstrap has a cluster of its own workload: Istio's agents and Navarch's put it there where
// ISTIO_META_ENABLE_SELF_DISCOVERY asks for it.
func selfDiscovery(metadata map[string]string) bool {
	asked, err := strconv.ParseBool(metadata["ENABLE_SELF_DISCOVERY"])
	return err == nil && asked
}

// hasIdentity says whether a proxy gets certificates: its agent says so (NAVARCH_IDENTITY), by SDS or, for an application with gRPC's
// xDS client, by the certificate provider of its bootstrap; or it is Istio's.
func hasIdentity(metadata map[string]string) bool {
	if stated, ok := metadata["NAVARCH_IDENTITY"]; ok {
		if metadata["GENERATOR"] == "grpc" {
			return stated == "provider"
		}
		return stated == "sds"
	}
	return istios(metadata)
}

// readsFiles is what a proxy's agent serves of files: Istio's certificates and authorities, Navarch's, since it says so (NAVARCH_FILES), revocation lists
// too. Where it does not, Envoy reads the files itself.
func readsFiles(metadata map[string]string) xds.Caps {
	if _, ours := metadata["NAVARCH_IDENTITY"]; !ours {
		return xds.CapFileSecrets
	}
	if metadata["NAVARCH_FILES"] == "sds" {
		return xds.CapFileSecrets | xds.CapFileLists
	}
	return 0
}

// fetchesModules says whether a proxy's agent takes modules of WebAssembly out of what Envoy is sent, and fetches them: Istio's does
// (istio pkg/istio-agent, pkg/wasm).
func fetchesModules(metadata map[string]string) bool {
	return istios(metadata) && metadata["GENERATOR"] == ""
}
