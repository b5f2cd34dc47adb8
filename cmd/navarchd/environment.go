package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/navarchd/injection"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/allocate"
	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/machines"
)

// environment has the values of the environment variables that Navarch supports. Istiod's variables have Istio's names
// and defaults.
type environment struct {
	reads        map[string]bool // names of variables that are read, whether set or not
	podName      string
	debounce     time.Duration // PILOT_DEBOUNCE_AFTER
	debounceMax  time.Duration // PILOT_DEBOUNCE_MAX
	loopsOff     []string      // NAVARCH_EXPERIMENT_OFF: control loops that are off, in a build with the tag experiment
	edsDebounce  bool          // PILOT_ENABLE_EDS_DEBOUNCE; false (the default): changes of endpoints are not debounced
	pushThrottle int           // PILOT_PUSH_THROTTLE; 0: 100
	maxRecvSize  int           // ISTIO_GPRC_MAXRECVMSGSIZE, bytes
	debugOnHTTP  bool          // ENABLE_DEBUG_ON_HTTP
	// ENABLE_DEBUG_ENDPOINT_AUTH: /debug requires a credential, except from this machine. A tenant sees only its own
	// objects.
	debugAuth bool
	// PILOT_SCOPE_GATEWAY_TO_NAMESPACE, PILOT_FILTER_GATEWAY_CLUSTER_CONFIG, PILOT_ENABLE_QUIC_LISTENERS,
	// NAVARCH_ENABLE_MISDIRECTED_REQUESTS, NAVARCH_GATEWAY_LOCAL_DESTINATIONS
	routers     view.RouterSettings
	maxRequests float64 // PILOT_MAX_REQUESTS_PER_SECOND: limit of new streams; 0: no fixed limit
	podIP       string  // POD_IP

	podNamespace string   // POD_NAMESPACE
	account      string   // SERVICE_ACCOUNT; with the namespace it is the control plane's identity
	revision     string   // REVISION
	watchOnly    string   // ISTIO_WATCH_NAMESPACE
	ignore       []string // PILOT_IGNORE_RESOURCES, comma-separated
	include      []string // PILOT_INCLUDE_RESOURCES, comma-separated
	sharedMesh   string   // SHARED_MESH_CONFIG
	theirEntries bool     // PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY: WorkloadEntries of other clusters are read
	// PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS, comma-separated: options other than inline data that kubeconfigs
	// of other clusters may use
	fromFiles     []string
	customHost    string         // ISTIOD_CUSTOM_HOST
	audiences     []string       // TOKEN_AUDIENCES, comma-separated
	certTTL       time.Duration  // DEFAULT_WORKLOAD_CERT_TTL
	maxCertTTL    time.Duration  // MAX_WORKLOAD_CERT_TTL
	xdsAuth       bool           // XDS_AUTH: the secure address requires a credential
	identityCheck bool           // PILOT_ENABLE_XDS_IDENTITY_CHECK
	autoRegister  bool           // PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION
	machineGrace  time.Duration  // PILOT_WORKLOAD_ENTRY_GRACE_PERIOD
	keyRefresh    time.Duration  // PILOT_JWT_PUB_KEY_REFRESH_INTERVAL: validity of fetched key sets
	keysNotAt     []netip.Prefix // BLOCKED_CIDRS_IN_JWKS_URIS: addresses from which no key sets are fetched
	gatewayNames  bool           // RESOLVE_HOSTNAME_GATEWAYS: host names of network gateways are resolved
	theirNames    bool           // ENABLE_MULTICLUSTER_HEADLESS: headless Services include endpoints of other clusters
	// PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER: each TCP port of a headless Service has one listener
	oneListener    bool
	autoAllocate   bool                     // PILOT_ENABLE_IP_AUTOALLOCATE: ServiceEntries without addresses get addresses
	ipv4Range      netip.Prefix             // PILOT_IP_AUTOALLOCATE_IPV4_PREFIX
	ipv6Range      netip.Prefix             // PILOT_IP_AUTOALLOCATE_IPV6_PREFIX
	status         bool                     // PILOT_ENABLE_STATUS: the status of Istio's objects in the cluster is written
	otherCA        bool                     // ENABLE_CA_SERVER=false: certificates come from another CA
	signers        bool                     // EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API: Kubernetes signers sign for role ca
	signer         string                   // K8S_SIGNER
	signerDomain   string                   // CERT_SIGNER_DOMAIN
	certProvider   string                   // PILOT_CERT_PROVIDER; empty or istiod: the mesh's CA or --tls-cert gives the serving certificate
	nativeSidecars injection.NativeSidecars // ENABLE_NATIVE_SIDECARS: when injected proxies are sidecar containers
}

// read parses the variables that lookup returns. Unset and empty variables get their defaults. The error joins the
// errors of all invalid variables.
func (e *environment) read(lookup func(string) (string, bool)) error {
	*e = environment{reads: map[string]bool{},
		debounce: 100 * time.Millisecond, debounceMax: 10 * time.Second, maxRecvSize: 4 << 20, debugOnHTTP: true, debugAuth: true,
		podNamespace: "istio-system", account: "istiod", audiences: []string{"istio-ca"},
		certTTL: 24 * time.Hour, maxCertTTL: 90 * 24 * time.Hour,
		theirEntries: true, theirNames: true, xdsAuth: true, identityCheck: true, autoRegister: true, machineGrace: machines.DefaultGrace,
		keyRefresh: jwks.Refresh, gatewayNames: true, autoAllocate: true, ipv4Range: netip.MustParsePrefix(allocate.IPv4Range),
		ipv6Range: netip.MustParsePrefix(allocate.IPv6Range), nativeSidecars: injection.NativeAuto,
	}
	var problems []error
	parse := func(name string, set func(string) error) {
		e.reads[name] = true
		if v, ok := lookup(name); ok && v != "" {
			if err := set(v); err != nil {
				problems = append(problems, fmt.Errorf("environment %s=%q: %w", name, v, err))
			}
		}
	}
	parse("POD_NAME", text(&e.podName))
	parse("PILOT_DEBOUNCE_AFTER", duration(&e.debounce))
	parse("PILOT_DEBOUNCE_MAX", duration(&e.debounceMax))
	parse("PILOT_ENABLE_EDS_DEBOUNCE", boolean(&e.edsDebounce))
	parse("PILOT_PUSH_THROTTLE", count(&e.pushThrottle))
	parse("ISTIO_GPRC_MAXRECVMSGSIZE", count(&e.maxRecvSize))
	parse("ENABLE_DEBUG_ON_HTTP", boolean(&e.debugOnHTTP))
	parse("ENABLE_DEBUG_ENDPOINT_AUTH", boolean(&e.debugAuth))
	parse("PILOT_MAX_REQUESTS_PER_SECOND", perSecond(&e.maxRequests))
	parse("POD_IP", text(&e.podIP))
	e.readRouters(parse)
	parse("POD_NAMESPACE", text(&e.podNamespace))
	parse("SERVICE_ACCOUNT", text(&e.account))
	parse("REVISION", text(&e.revision))
	parse("ISTIO_WATCH_NAMESPACE", text(&e.watchOnly))
	parse("PILOT_IGNORE_RESOURCES", list(&e.ignore))
	parse("PILOT_INCLUDE_RESOURCES", list(&e.include))
	parse("SHARED_MESH_CONFIG", text(&e.sharedMesh))
	parse("PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS", list(&e.fromFiles))
	parse("PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY", boolean(&e.theirEntries))
	parse("ISTIOD_CUSTOM_HOST", text(&e.customHost))
	parse("TOKEN_AUDIENCES", func(v string) error { e.audiences = strings.Split(v, ","); return nil })
	parse("DEFAULT_WORKLOAD_CERT_TTL", duration(&e.certTTL))
	parse("MAX_WORKLOAD_CERT_TTL", duration(&e.maxCertTTL))
	e.readIssuers(parse)
	parse("NAVARCH_EXPERIMENT_OFF", loopsOff(&e.loopsOff))
	parse("XDS_AUTH", boolean(&e.xdsAuth))
	parse("PILOT_ENABLE_XDS_IDENTITY_CHECK", boolean(&e.identityCheck))
	parse("PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", boolean(&e.autoRegister))
	parse("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", duration(&e.machineGrace))
	parse("PILOT_ENABLE_STATUS", boolean(&e.status))
	parse("RESOLVE_HOSTNAME_GATEWAYS", boolean(&e.gatewayNames))
	parse("PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER", boolean(&e.oneListener))
	parse("ENABLE_MULTICLUSTER_HEADLESS", boolean(&e.theirNames))
	parse("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", duration(&e.keyRefresh))
	parse("BLOCKED_CIDRS_IN_JWKS_URIS", addressBlocks(&e.keysNotAt))
	parse("PILOT_ENABLE_IP_AUTOALLOCATE", boolean(&e.autoAllocate))
	parse("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", addressRange(&e.ipv4Range, 32))
	parse("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", addressRange(&e.ipv6Range, 128))
	parse("ENABLE_NATIVE_SIDECARS", e.nativeSidecars.Set)
	return errors.Join(problems...)
}

// readRouters parses the settings of gateways.
func (e *environment) readRouters(parse func(name string, set func(string) error)) {
	parse("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", boolean(&e.routers.OwnNamespace))
	parse("PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", boolean(&e.routers.Routed))
	parse("PILOT_ENABLE_QUIC_LISTENERS", boolean(&e.routers.QUIC))
	parse("NAVARCH_ENABLE_MISDIRECTED_REQUESTS", func(text string) error {
		on := true
		err := boolean(&on)(text)
		e.routers.Misdirected404 = !on
		return err
	})
	parse("NAVARCH_GATEWAY_LOCAL_DESTINATIONS", boolean(&e.routers.Local))
}

// off reports whether a control loop is off (NAVARCH_EXPERIMENT_OFF).
func (e *environment) off(controlLoop string) bool { return slices.Contains(e.loopsOff, controlLoop) }

// envOr returns the value of an environment variable. For an unset or empty variable it returns its second argument.
func envOr(name, otherwise string) string {
	if v, ok := os.LookupEnv(name); ok && v != "" {
		return v
	}
	return otherwise
}
