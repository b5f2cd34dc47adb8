package xds

import (
	"fmt"
	"strconv"
	"strings"
)

// Names that EnvoyFilters, dashboards and istioctl rely on; they are Istio's and never change.
const (
	BlackHole          = "BlackHoleCluster"
	Passthrough        = "PassthroughCluster"
	InboundPassthrough = "InboundPassthroughCluster"
	// AllowAnyDynamic is the cluster of plain HTTP to unknown hosts whose names the proxy resolves (istio: https://github.com/istio/istio/pull/59802).
	AllowAnyDynamic        = "AllowAnyDynamicDNSCluster"
	VirtualOutbound        = "virtualOutbound"
	VirtualInbound         = "virtualInbound"
	OutboundBlackHoleChain = "virtualOutbound-blackhole"
	OutboundCatchAllChain  = "virtualOutbound-catchall-tcp"
	OutboundCatchAllHTTP   = "virtualOutbound-catchall-http"
	InboundBlackHoleChain  = "virtualInbound-blackhole"
	AllowAny               = "allow_any"
	AllowAnyByName         = "allow_any_dynamic_dns" // of what goes to AllowAnyDynamic
	BlockAll               = "block_all"
	PassthroughChain       = "PassthroughFilterChain"
	HTTPProxy              = "http_proxy" // the route configuration of the HTTP proxy (MeshConfig proxyHttpPort)
	// LocalCluster is the cluster of the proxy's own workload, in bootstraps that ask for it (CapSelfDiscovery; istio: pilot/pkg/xds).
	LocalCluster = "local_cluster"
)

// The names of Secrets that the control plane sends (istio: pilot/pkg/model/credentials/resource.go): SecretPrefix and NAME or NAMESPACE/NAME.
// AuthoritiesSuffix follows the name of a Secret in that of the one with the certificates that peers are verified against.
const (
	SecretPrefix      = "kubernetes://"
	AuthoritiesSuffix = "-cacert"
)

// SecretResource is the resource that credentialName of a rule means.
func SecretResource(credential string) string {
	if strings.HasPrefix(credential, SecretPrefix) {
		return credential
	}
	return SecretPrefix + credential
}

// FileCertificate is the secret that agents read from files of the proxy (CapFileSecrets): a certificate chain, and its private key.
func FileCertificate(certificate, key string) string { return "file-cert:" + certificate + "~" + key }

// FileAuthorities is the secret with the authorities of peers that agents read from a file; "system" are those of the machine. Their revocation lists, from
// another file, are in the same secret, of agents that have such ones (CapFileLists); empty: there are none.
func FileAuthorities(certificates, revoked string) string {
	if revoked != "" {
		revoked = "~" + revoked
	}
	return "file-root:" + certificates + revoked
}

// FaultFilter is the name of the HTTP filter that injects faults; what a route says to it stands under this name.
const FaultFilter = "envoy.filters.http.fault"

// What a proxyless gRPC application and its bootstrap agree on with Istio's control plane (pilot/pkg/networking/grpcgen,
// pkg/istio-agent/grpcxds).
const (
	// ServerListener is the beginning of the names of listeners that a gRPC server asks for; where it listens ends them.
	ServerListener = "xds.istio.io/grpc/lds/inbound/"
	// CertificateProvider is the instance, in the bootstrap, of the plugin that has the application's certificate and what to trust.
	CertificateProvider = "default"
)

// OutboundCluster is outbound|port|subset|host.
func OutboundCluster(port uint32, subset, host string) string {
	return "outbound|" + strconv.FormatUint(uint64(port), 10) + "|" + subset + "|" + host
}

// ClusterName is what the name of an outbound cluster says. Comparable; the zero ClusterName is no cluster.
type ClusterName struct {
	Port   uint32
	Subset string // empty: all endpoints
	Host   string
}

// String is the name: outbound|port|subset|host.
func (c ClusterName) String() string { return OutboundCluster(c.Port, c.Subset, c.Host) }

// InboundCluster is inbound|port||.
func InboundCluster(port uint32) string { return fmt.Sprintf("inbound|%d||", port) }

// ParseCluster takes apart outbound|port|subset|host and inbound|port|subset|host.
func ParseCluster(name string) (direction string, port uint32, subset, host string, ok bool) {
	parts := strings.SplitN(name, "|", 4)
	if len(parts) != 4 {
		return "", 0, "", "", false
	}
	n, err := strconv.ParseUint(parts[1], 10, 16)
	return parts[0], uint32(n), parts[2], parts[3], err == nil
}

// ListenerName is bind_port: 0.0.0.0_80, 10.96.0.11_9000.
func ListenerName(bind string, port uint32) string { return fmt.Sprintf("%s_%d", bind, port) }

// VirtualHost is host:port.
func VirtualHost(host string, port uint32) string { return fmt.Sprintf("%s:%d", host, port) }
