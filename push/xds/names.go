package xds

import (
	"fmt"
	"strconv"
	"strings"
)

// These are Istio's names of resources, on which EnvoyFilters, dashboards and istioctl rely. They never change.
const (
	BlackHole          = "BlackHoleCluster"          // cluster that forwards no connections
	Passthrough        = "PassthroughCluster"        // cluster of the original destinations of outbound connections
	InboundPassthrough = "InboundPassthroughCluster" // cluster of the original destinations of inbound connections
	// AllowAnyDynamic is the cluster for plain HTTP to unknown hosts whose names the proxy resolves (istio:
	// https://github.com/istio/istio/pull/59802).
	AllowAnyDynamic        = "AllowAnyDynamicDNSCluster"
	VirtualOutbound        = "virtualOutbound"               // listener of redirected outbound connections
	VirtualInbound         = "virtualInbound"                // listener of redirected inbound connections
	OutboundBlackHoleChain = "virtualOutbound-blackhole"     // filter chain
	OutboundCatchAllChain  = "virtualOutbound-catchall-tcp"  // filter chain
	OutboundCatchAllHTTP   = "virtualOutbound-catchall-http" // filter chain
	InboundBlackHoleChain  = "virtualInbound-blackhole"      // filter chain
	AllowAny               = "allow_any"                     // virtual host that lets requests to unknown hosts pass
	AllowAnyByName         = "allow_any_dynamic_dns"         // virtual host whose requests go to AllowAnyDynamic
	BlockAll               = "block_all"                     // virtual host that refuses requests to unknown hosts
	PassthroughChain       = "PassthroughFilterChain"        // filter chain
	HTTPProxy              = "http_proxy"                    // route configuration of the HTTP proxy (MeshConfig proxyHttpPort)
	// LocalCluster is the cluster of the proxy's own workload, for bootstraps that have it (CapSelfDiscovery; istio:
	// pilot/pkg/xds).
	LocalCluster = "local_cluster"
)

// FileCertificate returns the name of the secret that an agent reads from two files of the proxy, a certificate chain
// and its private key (CapFileSecrets).
func FileCertificate(certificate, key string) string { return "file-cert:" + certificate + "~" + key }

// FileAuthorities returns the name of the secret with CAs of peers that an agent reads from a file (CapFileSecrets).
// certificates is the path of the file, or "system" for the machine's CAs. revoked is the path of the file with the
// CAs' revocation lists, for agents with CapFileLists; empty: there are no lists.
func FileAuthorities(certificates, revoked string) string {
	if revoked != "" {
		revoked = "~" + revoked
	}
	return "file-root:" + certificates + revoked
}

// OwnedFile returns the name of a file secret that an object of another namespace than the proxy's makes the proxy
// request, for agents with CapFileOwners. The agent serves a bounded number of secrets for each such namespace. For an
// empty namespace the name stays unchanged.
func OwnedFile(name, namespace string) string {
	if namespace == "" {
		return name
	}
	return name + "~~" + namespace
}

// FaultFilter is the name of the HTTP filter that injects faults, and the key of its configuration in a route.
const FaultFilter = "envoy.filters.http.fault"

// GRPCWebFilter is the name of the HTTP filter that translates gRPC-Web to gRPC.
const GRPCWebFilter = "envoy.filters.http.grpc_web"

// These names are fixed by Istio's bootstrap for proxyless gRPC applications (pilot/pkg/networking/grpcgen,
// pkg/istio-agent/grpcxds).
const (
	// ServerListener is the start of the name of the listener that a gRPC server requests. The server's address,
	// host:port, follows.
	ServerListener = "xds.istio.io/grpc/lds/inbound/"
	// CertificateProvider is the instance name of the bootstrap's plugin that provides the application's certificate
	// and roots.
	CertificateProvider = "default"
)

// IsOutbound reports whether a name has the form of OutboundCluster. It does not check the port.
func IsOutbound(cluster string) bool {
	return strings.HasPrefix(cluster, "outbound|") && strings.Count(cluster, "|") == 3
}

// OutboundCluster returns the name outbound|port|subset|host.
func OutboundCluster(port uint32, subset, host string) string {
	return "outbound|" + strconv.FormatUint(uint64(port), 10) + "|" + subset + "|" + host
}

// sniPrefix is the start of each name of SNICluster.
const sniPrefix = "outbound_."

// SNICluster returns outbound_.port_.subset_.host. Proxies send this name as SNI to a gateway between networks, and
// the gateway's own cluster has the same name (istio: pilot/pkg/model/service.go, BuildDNSSrvSubsetKey).
func SNICluster(port uint32, subset, host string) string {
	return sniPrefix + strconv.FormatUint(uint64(port), 10) + "_." + subset + "_." + host
}

// ClusterName holds the parts of the name of an outbound cluster. It is comparable. The zero ClusterName means no
// cluster.
type ClusterName struct {
	Port   uint32
	Subset string // empty: all endpoints
	Host   string
}

// String returns the name: outbound|port|subset|host.
func (c ClusterName) String() string { return OutboundCluster(c.Port, c.Subset, c.Host) }

// InboundCluster returns the name inbound|port||.
func InboundCluster(port uint32) string { return fmt.Sprintf("inbound|%d||", port) }

// ParseCluster parses the name direction|port|subset|host of a cluster. host is the rest after the third "|". ok is
// false if the name has fewer than four parts, or if the port is not a number of 16 bits. The other results must not be
// used then.
func ParseCluster(name string) (direction string, port uint32, subset, host string, ok bool) {
	parts := strings.SplitN(name, "|", 4)
	if len(parts) != 4 {
		return "", 0, "", "", false
	}
	n, err := strconv.ParseUint(parts[1], 10, 16)
	return parts[0], uint32(n), parts[2], parts[3], err == nil
}

// ListenerName returns the name bind_port, such as 0.0.0.0_80 or 10.96.0.11_9000.
func ListenerName(bind string, port uint32) string { return fmt.Sprintf("%s_%d", bind, port) }

// VirtualHost returns the name host:port.
func VirtualHost(host string, port uint32) string { return fmt.Sprintf("%s:%d", host, port) }
