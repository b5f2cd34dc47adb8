package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"navarch.io/navarch/cmd/internal/etcdflags"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/injection"
	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/store/allocate"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/obs"
)

// role is one of the hats that a process may wear.
type role string

const (
	roleIngest role = "ingest"
	roleXDS    role = "xds"
	roleCA     role = "ca"
	roleAdmit  role = "admit"
)

// existing are the roles of this version.
var existing = []role{roleIngest, roleXDS, roleCA, roleAdmit}

// config is what the command line and the environment say.
type config struct {
	roles                  []string
	configDir              string
	kubeconfig, registries string // see kubernetes
	allowNone              bool
	heldFor                time.Duration // how long removals are held; 0: until they are accepted
	domain                 string
	cluster                string
	budget                 ingest.Budget // of each tenant
	isolation              isolated

	dataDir     string
	stateDir    string // what survives a restart beside etcd; with the embedded etcd, the data directory
	snapshotAge time.Duration
	etcd        etcdflags.Flags
	etcdQuota   int64
	mesh        string
	lease       time.Duration

	advertise    string
	zone         string
	replicaLease time.Duration
	ramp         time.Duration // 0: at once
	drainAfter   time.Duration
	ackDeadline  time.Duration
	retryAfter   time.Duration // of what is withheld
	rightsAway   time.Duration // how long the last yes of the authoriser stands while it is away
	contained    bool          // GOMEMLIMIT is of the container; not a flag
	levels       *obs.Levels   // of log lines, from logLevel; not a flag

	grpcAddr       string
	secureGRPCAddr string
	httpAddr       string
	httpsAddr      string
	monitoringAddr string
	ctrlzAddr      string
	debugHosts     []string
	tlsCert        string
	tlsKey         string
	clientCA       string
	sharedSources  []string
	shared         []netip.Prefix // the same, read by validate

	trustDomain               string
	renewAlone, renewMachines time.Duration // by certificate, since the last token; 0: without end
	kek                       string
	caCerts                   string
	caPeers                   []string
	accounts                  []string // of this control plane's processes, beside SERVICE_ACCOUNT
	tokenFile                 string
	peerRoots                 string
	tokenIssuer               string
	tokenKeys                 string
	tokenReview               bool
	writeRootCerts            bool
	writeWebhooks             bool

	logLevel string
	otlp     string
	shutdown time.Duration

	env          environment
	jwksRoots    string
	jwksLoopback bool
	jwksCluster  bool
}

// environment are the knobs of istiod that Navarch honours (compatibility: names and defaults are Istio's).
type environment struct {
	reads        map[string]bool // names of what is read of it, set or not
	podName      string
	debounce     time.Duration // PILOT_DEBOUNCE_AFTER
	debounceMax  time.Duration // PILOT_DEBOUNCE_MAX
	loopsOff     []string      // NAVARCH_EXPERIMENT_OFF: control loops that do nothing, to measure what each is worth
	edsDebounce  bool          // PILOT_ENABLE_EDS_DEBOUNCE; Navarch's default is the endpoint fast path
	pushThrottle int           // PILOT_PUSH_THROTTLE; 0: 100
	maxRecvSize  int           // ISTIO_GPRC_MAXRECVMSGSIZE, bytes
	debugOnHTTP  bool          // ENABLE_DEBUG_ON_HTTP
	debugAuth    bool          // ENABLE_DEBUG_ENDPOINT_AUTH: /debug is for this machine, the system namespace and, of its own, a tenant
	maxRequests  float64       // PILOT_MAX_REQUESTS_PER_SECOND; 0: as fast as this process can
	podIP        string        // POD_IP

	podNamespace   string                   // POD_NAMESPACE
	account        string                   // SERVICE_ACCOUNT; with the namespace it is the control plane's own identity
	revision       string                   // REVISION
	watchOnly      string                   // ISTIO_WATCH_NAMESPACE
	ignore         []string                 // PILOT_IGNORE_RESOURCES, comma-separated
	include        []string                 // PILOT_INCLUDE_RESOURCES, comma-separated
	sharedMesh     string                   // SHARED_MESH_CONFIG
	theirEntries   bool                     // PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY: WorkloadEntries of other clusters are read
	fromFiles      []string                 // PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS, comma-separated: what kubeconfigs of other clusters may have beside inline data
	customHost     string                   // ISTIOD_CUSTOM_HOST
	audiences      []string                 // TOKEN_AUDIENCES, comma-separated
	certTTL        time.Duration            // DEFAULT_WORKLOAD_CERT_TTL
	maxCertTTL     time.Duration            // MAX_WORKLOAD_CERT_TTL
	xdsAuth        bool                     // XDS_AUTH: the secure address wants a credential
	identityCheck  bool                     // PILOT_ENABLE_XDS_IDENTITY_CHECK
	autoRegister   bool                     // PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION
	machineGrace   time.Duration            // PILOT_WORKLOAD_ENTRY_GRACE_PERIOD
	keyRefresh     time.Duration            // PILOT_JWT_PUB_KEY_REFRESH_INTERVAL: how long fetched key sets are good
	keysNotAt      []netip.Prefix           // BLOCKED_CIDRS_IN_JWKS_URIS: where key sets are not fetched from
	gatewayNames   bool                     // RESOLVE_HOSTNAME_GATEWAYS: names of networks' gateways are resolved
	theirNames     bool                     // ENABLE_MULTICLUSTER_HEADLESS: names of headless Services have endpoints of other clusters, too
	oneListener    bool                     // PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER: TCP ports of headless Services have one listener each
	autoAllocate   bool                     // PILOT_ENABLE_IP_AUTOALLOCATE: hosts of ServiceEntries without an address are given some
	ipv4Range      netip.Prefix             // PILOT_IP_AUTOALLOCATE_IPV4_PREFIX: of these
	ipv6Range      netip.Prefix             // PILOT_IP_AUTOALLOCATE_IPV6_PREFIX
	status         bool                     // PILOT_ENABLE_STATUS: the status of Istio's objects in the cluster is written
	otherCA        bool                     // ENABLE_CA_SERVER=false: certificates come from another CA, and no process signs any
	signers        bool                     // EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API: role ca has signers of Kubernetes sign
	signer         string                   // K8S_SIGNER
	signerDomain   string                   // CERT_SIGNER_DOMAIN
	certProvider   string                   // PILOT_CERT_PROVIDER; empty or istiod: the serving certificate is one of our CA, or --tls-cert
	nativeSidecars injection.NativeSidecars // ENABLE_NATIVE_SIDECARS: when injected proxies are sidecar containers
}

// aliases are istiod's five address flags, and its folder flag, under the names that charts and scripts use.
var aliases = map[string]string{
	"httpAddr":         "http-addr",
	"httpsAddr":        "https-addr",
	"grpcAddr":         "grpc-addr",
	"secureGRPCAddr":   "secure-grpc-addr",
	"monitoringAddr":   "monitoring-addr",
	"configDir":        "config-dir",
	"shutdownDuration": "shutdown-duration",
}

func (c *config) bind(f *pflag.FlagSet) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if kebab, ok := aliases[name]; ok {
			name = kebab
		}
		return pflag.NormalizedName(name)
	})
	f.StringSliceVar(&c.roles, "roles", nil, "What this process does: ingest, xds, ca, admit (default: all of them; ca only where there is a key encryption key, --kek or --data-dir; admit only where a Kubernetes cluster is served, and there is such a key, or --tls-cert).")
	f.StringVar(&c.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML to serve; read again when it changes.")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster to serve; beside --config-dir or instead of it.")
	f.StringVar(&c.registries, "registries", "", "Kubernetes: serve the cluster of --kubeconfig, else the one whose service account this process has (default: Kubernetes with --kubeconfig, else none).")
	f.BoolVar(&c.allowNone, "allow-empty", false, "Remove objects whatever makes them go, instead of holding removals that nobody asked for until navarchctl removals accept.")
	f.DurationVar(&c.heldFor, "held-removals-end-after", 10*time.Minute, "How long removals are held before they apply by themselves, unless everything of a kind is gone, or it is a policy; 0: until navarchctl removals accept. On every process with role ingest, alike.")
	c.bindTenants(f)
	f.StringVar(&c.domain, "domain", "cluster.local", "DNS domain of the cluster.")
	f.StringVar(&c.cluster, "cluster-id", envOr("CLUSTER_ID", "Kubernetes"), "Name of the cluster that the configuration is of.")
	f.StringVar(&c.dataDir, "data-dir", "", "Directory of the embedded etcd (one process, one directory).")
	f.StringVar(&c.stateDir, "state-dir", "", "Folder of this replica's own memory beside etcd: its last snapshot, to start from while etcd is away, and the newest keyring that it saw (default: the data directory; without either nothing is remembered).")
	f.DurationVar(&c.snapshotAge, "snapshot-max-age", 24*time.Hour, "Age after which the snapshot in --state-dir is not started from any more.")
	c.etcd.Bind(f)
	f.Int64Var(&c.etcdQuota, "etcd-quota-bytes", 2<<30, "Quota of an etcd that does not say it itself (before 3.6): at 80 % of it the store counts as filling.")
	f.StringVar(&c.mesh, "mesh", "default", "Name of the mesh; part of every key in etcd.")
	f.DurationVar(&c.lease, "leader-lease", 10*time.Second, "Time after which a leader that is silent is replaced.")
	f.StringVar(&c.advertise, "advertise-address", "", "Address at which agents find this replica: host, or host:port of the secure address, else of the plain one (default: POD_IP, or the host that this listens on).")
	f.StringVar(&c.zone, "zone", os.Getenv("NAVARCH_ZONE"), "Zone that this replica runs in.")
	f.DurationVar(&c.replicaLease, "replica-lease", 10*time.Second, "Time after which the proxies of a replica that is silent are given to others.")
	f.DurationVar(&c.ramp, "replica-ramp", time.Minute, "Time over which a replica that is new takes its share of the proxies.")
	f.DurationVar(&c.drainAfter, "drain-after", time.Minute, "Time for which a replica has more than 1.25 times its share of the streams before it closes some, a few a second.")
	f.DurationVar(&c.ackDeadline, "ack-deadline", time.Minute, "Time after which a proxy that does not acknowledge what it was sent is disconnected.")
	f.DurationVar(&c.retryAfter, "withheld-retry-after", quarantine.DefaultPause, "Time after which a version that is withheld from a view, because proxies refused it, is sent to one of its proxies again; each retry that fails doubles it, up to eight minutes.")
	f.DurationVar(&c.rightsAway, "secret-rights-max-age", access.DefaultAway, "Time for which a service account that was last found to be allowed to list the Secrets of its namespace is still sent private keys, while whoever says that is away.")
	f.StringVar(&c.grpcAddr, "grpc-addr", "", "Address of plain-text xDS, for example :15010; off unless given.")
	f.StringVar(&c.secureGRPCAddr, "secure-grpc-addr", ":15012", "Address of xDS and of the CA over TLS, with the certificate of --tls-cert and --tls-key, else one of the mesh's CA; off where there is neither these two nor a key encryption key (--kek).")
	f.StringVar(&c.httpAddr, "http-addr", ":8080", "Address of /ready and /debug.")
	f.StringSliceVar(&c.debugHosts, "debug-hosts", nil, "More names (Host of a request) by which /debug may be asked for, beside localhost, loopback addresses, and the names and addresses that this process is configured with.")
	f.StringVar(&c.httpsAddr, "https-addr", ":15017", "Address of the webhooks (role admit), over TLS with the certificate of the secure address; without role admit it is not opened.")
	f.StringVar(&c.monitoringAddr, "monitoring-addr", ":15014", "Address of /metrics, /version and /debug.")
	f.StringVar(&c.tlsCert, "tls-cert", "", "File of the certificate chain of the secure address.")
	f.StringVar(&c.tlsKey, "tls-key", "", "File of the key of the secure address.")
	f.StringVar(&c.clientCA, "tls-client-ca", "", "File of certificates that clients' certificates are verified against.")
	f.StringSliceVar(&c.sharedSources, "shared-sources", []string{"127.0.0.0/8", "::1"}, "Addresses and ranges (CIDR) behind each of whose addresses many clients are, as behind gateways and NAT: one such address may have as many connections without a credential as all others together.")
	f.StringVar(&c.trustDomain, "trust-domain", "cluster.local", "Trust domain of the identities that role ca gives out.")
	f.DurationVar(&c.renewAlone, "renewals-without-token", 48*time.Hour, "Time since its last token for which a workload renews by its certificate alone; 0: without end.")
	f.DurationVar(&c.renewMachines, "machine-renewals", 0, "The same for machines: service accounts that a WorkloadEntry, a WorkloadGroup, or an endpoint of a ServiceEntry, in their namespace names, for as long as it does; 0: without end.")
	f.StringVar(&c.kek, "kek", "", "Key encryption key of role ca, and of Secrets (roles ingest and xds): file:PATH, passphrase-file:PATH, or kms:SOCKET of a Kubernetes KMS v2 plugin (default, with --data-dir: a file in it).")
	f.StringVar(&c.caCerts, "cacerts", "", "Folder of your own CA (ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem) (default, with --kubeconfig or --registries: the Secret cacerts of the system namespace, else istio-ca-secret); where there is none roots are made here.")
	c.bindPeers(f)
	f.StringVar(&c.tokenIssuer, "token-issuer", "", "Issuer of service-account tokens that are accepted (default, with --kubeconfig or --registries: that of the API server, with its keys).")
	f.StringVar(&c.tokenKeys, "token-keys", "", "Its public keys: a URL or a file of a JWKS, or a PEM file (default: OpenID discovery at the issuer).")
	f.BoolVar(&c.writeRootCerts, "write-root-certs", true, "Keep the ConfigMap istio-ca-root-cert of each namespace of the cluster, while this process leads.")
	f.BoolVar(&c.writeWebhooks, "write-webhook-configurations", true, "Keep the roots and the failure policy in the webhook configurations of this revision and its tags, while this process leads.")
	f.BoolVar(&c.tokenReview, "token-review", false, "Ask the API server of --kubeconfig or --registries (TokenReview) about service-account tokens of other issuers, and while keys cannot be had.")
	c.bindKeySets(f)
	c.bindLog(f)
	f.StringVar(&c.otlp, "otlp-endpoint", "", "Address of an OTLP collector for spans from event to ACK; off unless given.")
	f.DurationVar(&c.shutdown, "shutdown-duration", 10*time.Second, "Longest time for an orderly stop.")
}

// bindLog adds the flags of the log.
func (c *config) bindLog(f *pflag.FlagSet) {
	f.StringVar(&c.logLevel, "log-level", "info", "Least level of log lines: debug, info, warn, error, none; also as Istio writes levels of scopes (default:info,ads:debug); the scopes are ads, admit, ca, default, etcd and ingest.")
	f.StringVar(&c.ctrlzAddr, "ctrlz-addr", "127.0.0.1:9876", "Loopback address at which the levels of log lines are changed (navarchctl log, istioctl admin log); empty: nowhere.")
}

// bindTenants are the limits of one tenant.
func (c *config) bindTenants(f *pflag.FlagSet) {
	f.IntVar(&c.budget.Objects, "tenant-max-objects", 0, "Objects that one tenant may have, EndpointSlices aside; 0: no limit. A tenant is a namespace, or those with one value of the label "+isolation.TenantLabel+".")
	f.IntVar(&c.budget.Bytes, "tenant-max-bytes", 0, "Bytes of normalised configuration that one tenant may have; 0: no limit.")
	exported, own := memory.Tenant()
	f.IntVar(&c.budget.Exported, "tenant-max-exported", exported, "Estimated MiB of each replica's memory that one tenant may take by what it exports to other namespaces: hosts by ports, subsets, routes; 0: no limit.")
	f.IntVar(&c.budget.Own, "tenant-max-own", own, "The same for what only proxies of its own namespaces get; 0: no limit.")
	c.isolation.bind(f)
}

// fill sets what follows from other flags where it is not set.
func (c *config) fill() {
	if c.kek == "" && c.dataDir != "" {
		c.kek = "file:" + filepath.Join(c.dataDir, "kek.key")
	}
	if c.stateDir == "" {
		c.stateDir = c.dataDir
	}
	if len(c.roles) == 0 {
		for _, r := range existing {
			if c.byDefault(r) {
				c.roles = append(c.roles, string(r))
			}
		}
	}
}

// byDefault: a process that is not told its roles has this one.
func (c *config) byDefault(r role) bool {
	switch r {
	case roleCA:
		return (c.kek != "" || c.env.signers) && !c.env.otherCA
	case roleAdmit:
		return c.kubernetes() && c.httpsAddr != "" && (c.kek != "" && !c.env.otherCA && !c.env.signers || c.tlsCert != "")
	case roleIngest, roleXDS:
	}
	return true
}

// kubernetes: a Kubernetes cluster is read.
func (c *config) kubernetes() bool { return c.kubeconfig != "" || c.registries == registryKubernetes }

// registryKubernetes is the one registry that there is (istiod's --registries).
const registryKubernetes = "Kubernetes"

// hasKeyring: the process follows the keyring, be it to sign or only to say what is trusted and what is revoked.
func (c *config) hasKeyring() bool {
	return !c.env.signers && (c.has(roleCA) || c.kek != "" && c.clientCA == "" && !c.env.otherCA && (c.has(roleXDS) || c.has(roleIngest) || c.has(roleAdmit)))
}

// speaksGRPC: the process serves one of the gRPC addresses.
func (c *config) speaksGRPC() bool { return c.has(roleXDS) || c.has(roleCA) }

func (c *config) has(r role) bool { return slices.Contains(c.roles, string(r)) }

// read takes the knobs from the environment; what is not set keeps its default.
func (e *environment) read(lookup func(string) (string, bool)) error {
	*e = environment{reads: map[string]bool{},
		debounce: 100 * time.Millisecond, debounceMax: 10 * time.Second, maxRecvSize: 4 << 20, debugOnHTTP: true, debugAuth: true,
		podNamespace: "istio-system", account: "istiod", audiences: []string{"istio-ca"}, certTTL: 24 * time.Hour, maxCertTTL: 90 * 24 * time.Hour,
		theirEntries: true, theirNames: true, xdsAuth: true, identityCheck: true, autoRegister: true, machineGrace: machines.DefaultGrace,
		keyRefresh: jwks.Refresh, gatewayNames: true, autoAllocate: true, ipv4Range: netip.MustParsePrefix(allocate.IPv4Range), ipv6Range: netip.MustParsePrefix(allocate.IPv6Range), nativeSidecars: injection.NativeAuto,
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

// controlLoops are the control loops on the load of this machine. Each says in its package which fault it was made for.
var controlLoops = []string{"joins", "moves", "drain", "window", "collector"}

// off says whether a control loop is to do nothing.
func (e *environment) off(controlLoop string) bool { return slices.Contains(e.loopsOff, controlLoop) }

// loopsOff takes a list of control loops.
func loopsOff(into *[]string) func(string) error {
	return func(v string) error {
		*into = strings.Split(v, ",")
		for _, name := range *into {
			if !slices.Contains(controlLoops, name) {
				return fmt.Errorf("%q is no control loop: want some of %s", name, strings.Join(controlLoops, ","))
			}
		}
		return nil
	}
}

// debugNames are the names by which /debug may be asked for, beside localhost and loopback addresses.
func (c *config) debugNames() web.Hosts {
	return web.NewHosts(slices.Concat(c.debugHosts, c.servingNames(), []string{c.env.podIP, c.advertise, c.httpAddr, c.monitoringAddr})...)
}

// advertised is the address that agents are told of this replica, and whether it speaks TLS; empty: none is known.
func (c *config) advertised() (address string, secure bool) {
	secure = c.secureGRPCAddr != "" && (c.has(roleCA) || c.tlsCert != "" || c.hasKeyring())
	listen := c.grpcAddr
	if secure {
		listen = c.secureGRPCAddr
	}
	if _, port, err := net.SplitHostPort(c.advertise); err == nil {
		_, plain, err := net.SplitHostPort(c.grpcAddr)
		_, over, _ := net.SplitHostPort(c.secureGRPCAddr)
		return c.advertise, secure && !(err == nil && port == plain && port != over)
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return "", secure
	}
	if host = cmp.Or(c.advertise, c.env.podIP, host); host == "" || net.ParseIP(host).IsUnspecified() {
		return "", secure
	}
	return net.JoinHostPort(host, port), secure
}

func envOr(name, otherwise string) string {
	if v, ok := os.LookupEnv(name); ok && v != "" {
		return v
	}
	return otherwise
}
