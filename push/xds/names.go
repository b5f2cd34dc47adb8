package xds

import (
	"fmt"
	"strconv"
	"strings"
)

// These are Istio's names of resources, on which EnvoyFilters, dashboards and istioctl rely. They never change.
const (
	BlackHole          = "BlackHoleCluster"          // cluster that forwards no connections
	Passthrough        = "PassthroughCluster"        // cluster that forwards outbound connections to their original destination
	InboundPassthrough = "InboundPassthroughCluster" // cluster that forwards inbound connections to their original destination
	// AllowAnyDynamic is the cluster for plain HTTP requests to unknown hosts. The proxy resolves the hosts' names
	// (istio: https://github.com/istio/istio/pull/59802).
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
	// LocalCluster is the cluster of the proxy's own workload. The bootstrap of a proxy with CapSelfDiscovery has this
	// cluster (istio: pilot/pkg/xds).
	LocalCluster = "local_cluster"
)

// FileCertificate returns the name of a secret that an agent reads from two files (CapFileSecrets). certificate is the
// path of a certificate chain, and key is the path of its private key.
func FileCertificate(certificate, key string) string { return "file-cert:" + certificate + "~" + key }

// FileAuthorities returns the name of the secret with the CAs of peers, which an agent reads from a file
// (CapFileSecrets). The parameter certificates is the path of the file, or "system" for the machine's CAs. The
// parameter revoked is the path of the file with the CAs' revocation lists, for agents with CapFileLists. If it is
// empty, there are no lists.
func FileAuthorities(certificates, revoked string) string {
	if revoked != "" {
		revoked = "~" + revoked
	}
	return "file-root:" + certificates + revoked
}

// OwnedFile appends a namespace to the name of a file secret, for agents with CapFileOwners. It is for a secret that a
// proxy requests because of an object in another namespace. The parameter namespace is that namespace. The agent serves
// a bounded number of secrets for each such namespace. If namespace is empty, OwnedFile returns name unchanged.
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
	// CertificateProvider is the instance name of the certificate provider plugin in the bootstrap. The plugin provides
	// the application's certificate and root certificates.
	CertificateProvider = "default"
)

// IsOutbound reports whether a cluster's name has the form of the names from OutboundCluster. It does not check the
// port.
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
// false if the name has fewer than four parts, or if the port is not a number of 16 bits. If ok is false, the other
// results must not be used.
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
