package main

import (
	"cmp"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"navarch.io/navarch/cmd/internal/etcdflags"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/obs"
)

// role is a value of the flag --roles.
type role string

const (
	roleIngest role = "ingest"
	roleXDS    role = "xds"
	roleCA     role = "ca"
	roleAdmit  role = "admit"
)

// existing lists all roles.
var existing = []role{roleIngest, roleXDS, roleCA, roleAdmit}

// config has the settings of the command line and the environment.
type config struct {
	lines  *collect.Lines // the last lines of the log
	stated []string       // flags that were set, for reports

	roles                  []string
	configDir              string
	kubeconfig, registries string // see the method kubernetes
	allowNone              bool
	heldFor                time.Duration // time for which removals wait; 0: until an operator accepts them
	domain                 string
	cluster                string
	budget                 ingest.Budget // of each tenant
	isolation              isolated

	dataDir     string
	stateDir    string // folder of data for a restart without etcd; default: dataDir
	snapshotAge time.Duration
	etcd        etcdflags.Flags
	etcdQuota   int64
	mesh        string
	lease       time.Duration

	advertise    string
	zone         string
	replicaLease time.Duration
	ramp         time.Duration // time until a new replica has its share of proxies; 0: at once
	drainAfter   time.Duration
	ackDeadline  time.Duration
	retryAfter   time.Duration // time after which a withheld version is sent again
	rightsAway   time.Duration // validity of the last permission to get private keys while the authoriser does not answer
	contained    bool          // Go's memory limit was derived from the container's memory limit; not a flag
	levels       *obs.Levels   // levels of log lines, from logLevel; not a flag

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
	shared         []netip.Prefix // validate parses these prefixes from sharedSources

	trustDomain               string
	renewAlone, renewMachines time.Duration // time without a token for which a certificate is renewed; 0: unbounded
	kek                       string
	caCerts                   string
	caPeers                   []string
	accounts                  []string // service accounts of this control plane, in addition to SERVICE_ACCOUNT
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

// aliases maps the names of istiod's flags to navarchd's names. Charts and scripts use istiod's names.
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
	f.StringSliceVar(&c.roles, "roles", nil,
		"Roles of this process: ingest, xds, ca, admit (default: all of them; ca only where there is a key encryption key, --kek or"+
			" --data-dir; admit only where a Kubernetes cluster is served, and there is such a key, or --tls-cert).")
	f.StringVar(&c.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML to serve; read again when it changes.")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster to serve; beside --config-dir or instead of it.")
	f.StringVar(&c.registries, "registries", "",
		"Kubernetes: serve the cluster of --kubeconfig, else the one whose service account this process has (default: Kubernetes with"+
			" --kubeconfig, else none).")
	f.BoolVar(&c.allowNone, "allow-empty", false,
		"Apply every removal at once. Without this flag, removals without a deletion are held (see navarchctl removals).")
	f.DurationVar(&c.heldFor, "held-removals-end-after", 10*time.Minute,
		"How long removals are held before they apply by themselves, unless everything of a kind is gone, or it is a policy; 0: until"+
			" navarchctl removals accept. On every process with role ingest, alike.")
	c.bindTenants(f)
	f.StringVar(&c.domain, "domain", "cluster.local", "DNS domain of the cluster.")
	f.StringVar(&c.cluster, "cluster-id", envOr("CLUSTER_ID", "Kubernetes"), "Name of the cluster to which the configuration belongs.")
	c.bindStore(f)
	c.bindFleet(f)
	c.bindAddresses(f)
	c.bindTrust(f)
	c.bindKeySets(f)
	c.bindLog(f)
	f.StringVar(&c.otlp, "otlp-endpoint", "", "Address of an OTLP collector for spans from event to ACK; off unless given.")
	f.DurationVar(&c.shutdown, "shutdown-duration", 10*time.Second, "Longest time for an orderly stop.")
}

// bindStore adds the flags of the store and of the mesh.
func (c *config) bindStore(f *pflag.FlagSet) {
	f.StringVar(&c.dataDir, "data-dir", "", "Directory of the embedded etcd (one process, one directory).")
	f.StringVar(&c.stateDir, "state-dir", "",
		"Folder of this replica's own memory beside etcd: its last snapshot, to start from while etcd is away, the newest keyring that it"+
			" saw, and whether it was killed for memory (default: the data directory; without either nothing is remembered).")
	f.DurationVar(&c.snapshotAge, "snapshot-max-age", 24*time.Hour,
		"Age after which the snapshot in --state-dir is not started from any more.")
	c.etcd.Bind(f)
	f.Int64Var(&c.etcdQuota, "etcd-quota-bytes", 2<<30,
		"Quota of an etcd that does not say it itself (before 3.6): at 80 % of it the store counts as filling.")
	f.StringVar(&c.mesh, "mesh", "default", "Name of the mesh; part of every key in etcd.")
	f.DurationVar(&c.lease, "leader-lease", 10*time.Second, "Time after which a leader that is silent is replaced.")
}

// bindFleet adds the flags of a replica in its fleet, and of its proxies.
func (c *config) bindFleet(f *pflag.FlagSet) {
	f.StringVar(&c.advertise, "advertise-address", "",
		"Address at which agents find this replica: host, or host:port of the secure address, else of the plain one (default: POD_IP, or"+
			" the host that this listens on).")
	f.StringVar(&c.zone, "zone", os.Getenv("NAVARCH_ZONE"), "Zone that this replica runs in.")
	f.DurationVar(&c.replicaLease, "replica-lease", 10*time.Second,
		"Time after which the proxies of a replica that is silent are given to others.")
	f.DurationVar(&c.ramp, "replica-ramp", time.Minute, "Time over which a replica that is new takes its share of the proxies.")
	f.DurationVar(&c.drainAfter, "drain-after", time.Minute,
		"Time for which a replica has more than 1.25 times its share of the streams before it closes some, a few a second.")
	f.DurationVar(&c.ackDeadline, "ack-deadline", time.Minute,
		"Time after which a proxy that does not acknowledge what it was sent is disconnected.")
	f.DurationVar(&c.retryAfter, "withheld-retry-after", quarantine.DefaultPause,
		"Time after which a version that is withheld from a view, because proxies refused it, is sent to one of its proxies again; each"+
			" retry that fails doubles it, up to eight minutes.")
	f.DurationVar(&c.rightsAway, "secret-rights-max-age", access.DefaultAway,
		"Time for which a service account that was last found to be allowed to list the Secrets of its namespace is still sent private"+
			" keys, while the API server does not answer.")
}

// bindAddresses adds the flags of the addresses.
func (c *config) bindAddresses(f *pflag.FlagSet) {
	f.StringVar(&c.grpcAddr, "grpc-addr", "", "Address of plain-text xDS, for example :15010; off unless given.")
	f.StringVar(&c.secureGRPCAddr, "secure-grpc-addr", ":15012",
		"Address of xDS and of the CA over TLS, with the certificate of --tls-cert and --tls-key, else one of the mesh's CA; off where"+
			" there is neither these two nor a key encryption key (--kek).")
	f.StringVar(&c.httpAddr, "http-addr", ":8080", "Address of /ready and /debug.")
	f.StringSliceVar(&c.debugHosts, "debug-hosts", nil,
		"More names (Host of a request) by which /debug may be asked for, beside localhost, loopback addresses, and the names and"+
			" addresses that this process is configured with.")
	f.StringVar(&c.httpsAddr, "https-addr", ":15017",
		"Address of the webhooks (role admit), over TLS with the certificate of the secure address; without role admit it is not opened.")
	f.StringVar(&c.monitoringAddr, "monitoring-addr", ":15014", "Address of /metrics, /version and /debug.")
	f.StringVar(&c.tlsCert, "tls-cert", "", "File of the certificate chain of the secure address.")
	f.StringVar(&c.tlsKey, "tls-key", "", "File of the key of the secure address.")
	f.StringVar(&c.clientCA, "tls-client-ca", "", "File of certificates that clients' certificates are verified against.")
	f.StringSliceVar(&c.sharedSources, "shared-sources", []string{"127.0.0.0/8", "::1"},
		"Addresses and ranges (CIDR) behind each of whose addresses many clients are, as behind gateways and NAT: one such address may"+
			" have as many connections without a credential as all others together.")
}

// bindTrust adds the flags of identities, certificates and keys.
func (c *config) bindTrust(f *pflag.FlagSet) {
	f.StringVar(&c.trustDomain, "trust-domain", "cluster.local", "Trust domain of the identities that role ca gives out.")
	f.DurationVar(&c.renewAlone, "renewals-without-token", 48*time.Hour,
		"Time since its last token for which a workload renews by its certificate alone; 0: without end.")
	f.DurationVar(&c.renewMachines, "machine-renewals", 0,
		"The same for machines: service accounts that a WorkloadEntry, a WorkloadGroup, or an endpoint of a ServiceEntry, in their"+
			" namespace names, for as long as it does; 0: without end.")
	f.StringVar(&c.kek, "kek", "",
		"Key encryption key of role ca, and of Secrets (roles ingest and xds): file:PATH, passphrase-file:PATH, or kms:SOCKET of a"+
			" Kubernetes KMS v2 plugin (default, with --data-dir: a file in it).")
	f.StringVar(&c.caCerts, "cacerts", "",
		"Folder of your own CA (ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem) (default, with --kubeconfig or --registries: the"+
			" Secret cacerts of the system namespace, else istio-ca-secret); without either, roots are made here.")
	c.bindPeers(f)
	f.StringVar(&c.tokenIssuer, "token-issuer", "",
		"Issuer of service-account tokens that are accepted (default, with --kubeconfig or --registries: that of the API server, with its keys).")
	f.StringVar(&c.tokenKeys, "token-keys", "",
		"Its public keys: a URL or a file of a JWKS, or a PEM file (default: OpenID discovery at the issuer).")
	f.BoolVar(&c.writeRootCerts, "write-root-certs", true,
		"Keep the ConfigMap istio-ca-root-cert of each namespace of the cluster, while this process leads.")
	f.BoolVar(&c.writeWebhooks, "write-webhook-configurations",
		true, "Keep the roots and the failure policy in the webhook configurations of this revision and its tags, while this process leads.")
	f.BoolVar(&c.tokenReview, "token-review", false,
		"Ask the API server of --kubeconfig or --registries (TokenReview) about service-account tokens of other issuers, and while keys"+
			" cannot be had.")
}

// bindLog adds the flags of the log.
func (c *config) bindLog(f *pflag.FlagSet) {
	f.StringVar(&c.logLevel, "log-level", "info",
		"Minimum level of log lines: debug, info, warn, error, none; Istio's form scope:level is accepted too (default:info,ads:debug); the"+
			" scopes are ads, admit, ca, default, etcd and ingest.")
	f.StringVar(&c.ctrlzAddr, "ctrlz-addr", "127.0.0.1:9876",
		"Loopback address at which the levels of log lines are changed (navarchctl log, istioctl admin log); empty: nowhere.")
}

// bindTenants adds the limits of one tenant.
func (c *config) bindTenants(f *pflag.FlagSet) {
	f.IntVar(&c.budget.Objects, "tenant-max-objects", 0,
		"Objects that one tenant may have, EndpointSlices aside; 0: no limit. A tenant is a namespace, or those with one value of the label "+
			isolation.TenantLabel+".")
	f.IntVar(&c.budget.Bytes, "tenant-max-bytes", 0, "Bytes of normalised configuration that one tenant may have; 0: no limit.")
	exported, own := memory.Tenant()
	f.IntVar(&c.budget.Exported, "tenant-max-exported", exported,
		"Estimated MiB of each replica's memory that one tenant may take by what it exports to other namespaces: hosts by ports, subsets,"+
			" routes; 0: no limit.")
	f.IntVar(&c.budget.Own, "tenant-max-own", own, "The same for what only proxies of its own namespaces get; 0: no limit.")
	c.isolation.bind(f)
}

// fill sets unset flags whose defaults depend on other flags.
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

// byDefault reports whether a process without --roles has the role r.
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

// kubernetes reports whether a Kubernetes cluster is read.
func (c *config) kubernetes() bool { return c.kubeconfig != "" || c.registries == registryKubernetes }

// registryKubernetes is the only supported registry (istiod's --registries).
const registryKubernetes = "Kubernetes"

// hasKeyring reports whether the process reads the keyring (the keys of the mesh's CA). The process needs the keyring
// to sign, or to learn roots and revocations.
func (c *config) hasKeyring() bool {
	return !c.env.signers && (c.has(roleCA) || c.kek != "" && c.clientCA == "" &&
		!c.env.otherCA && (c.has(roleXDS) || c.has(roleIngest) || c.has(roleAdmit)))
}

// speaksGRPC reports whether the process serves a gRPC address.
func (c *config) speaksGRPC() bool { return c.has(roleXDS) || c.has(roleCA) }

func (c *config) has(r role) bool { return slices.Contains(c.roles, string(r)) }

// debugNames returns the host names that requests to /debug may use, in addition to localhost and loopback addresses.
func (c *config) debugNames() web.Hosts {
	return web.NewHosts(slices.Concat(c.debugHosts, c.servingNames(), []string{c.env.podIP, c.advertise, c.httpAddr, c.monitoringAddr})...)
}

// advertised returns this replica's address for agents, and whether agents use TLS at that address. The address is
// empty if it is unknown.
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
